#include "tools/terminal/terminal.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tools/terminal/progress_bar.h"
#include "tools/terminal/table.h"
#include "tools/terminal/units.h"

namespace gpupool::tools {
namespace {

TEST(Units, BytesHaveThreeDigits) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1024), "1.00 KiB");
  EXPECT_EQ(human_bytes(std::uint64_t{140} << 30), "140 GiB");
  EXPECT_EQ(human_bytes(std::uint64_t{1023} << 20), "1.00 GiB");
  EXPECT_EQ(human_bytes(10'919'000'000), "10.2 GiB");
  EXPECT_EQ(human_bytes(~std::uint64_t{0}), "16.0 EiB");
  EXPECT_EQ(human_bytes((std::uint64_t{10} << 20) - 1), "10.0 MiB");
  EXPECT_EQ(human_bytes((std::uint64_t{100} << 20) - 1), "100 MiB");
}

TEST(Units, DigitsAreGrouped) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1 000");
  EXPECT_EQ(grouped(933477), "933 477");
  EXPECT_EQ(grouped(~std::uint64_t{0}), "18 446 744 073 709 551 615");
}

TEST(Table, AlignsColumnsAndSetsHeadingsAtTheBottom) {
  Table table({{"name", true, false}, {"driver\ncalls", false, true}, {"ms", false, false}});
  table.add_row({{"a"}, {"1"}, {"12.5"}});
  table.add_row({{"longer"}, {"1 234"}, {"0"}});
  EXPECT_EQ(table.render(Terminal()),
            "        driver\n"
            "name     calls   ms\n"
            "------  -----------\n"
            "a            1 12.5\n"
            "longer   1 234    0\n");
}

TEST(Table, NamesGroupsInTheirMiddleAndPutsLinesAcross) {
  Table table(
      {{"name", true}, {"cold", false, true, "driver ms"}, {"warm", false}, {"held", false, true}});
  table.add_line({"a line that no column is made wider for"});
  table.add_row({{"a"}, {"1.5"}, {"1 234.5"}, {"1"}});
  table.add_line({});
  table.add_row({{"b"}, {"1.5"}, {"0.5"}, {"2"}});
  EXPECT_EQ(table.render(Terminal()),
            "       driver ms\n"
            "name  cold    warm  held\n"
            "----  ------------  ----\n"
            "a line that no column is made wider for\n"
            "a      1.5 1 234.5     1\n"
            "\n"
            "b      1.5     0.5     2\n");
}

TEST(Table, HasColourOnlyWhereTheTerminalHas) {
  Table table({{"n", true, false}});
  table.add_row({{"bad", Style::red}});
  EXPECT_EQ(table.render(Terminal()).find('\033'), std::string::npos);
  Terminal colour;
  colour.has_colour = true;
  EXPECT_NE(table.render(colour).find("\033[31mbad\033[0m"), std::string::npos);
}

TEST(Terminal, AFileIsNone) {
  std::FILE* const file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  const Terminal terminal = inspect_terminal(file);
  EXPECT_FALSE(terminal.is_terminal);
  EXPECT_FALSE(terminal.has_colour);
  EXPECT_EQ(terminal.columns, 120U);
  {
    ProgressBar bar(file, 10);
    bar.update("nobody sees this", 5);
  }
  EXPECT_EQ(std::ftell(file), 0);
  std::fclose(file);
}

TEST(ProgressBar, FillsWithItsShareAndFitsTheTerminal) {
  Terminal terminal;
  EXPECT_NE(progress_line(terminal, "moe", 0, 4).find(" ................................  0 %"),
            std::string::npos);
  EXPECT_NE(progress_line(terminal, "moe", 1, 4).find(" ########........................  25 %"),
            std::string::npos);
  EXPECT_NE(progress_line(terminal, "moe", 9, 4).find(" ################################  100 %"),
            std::string::npos);
  EXPECT_NE(progress_line(terminal, "moe", 0, 0).find("100 %"), std::string::npos);
  for (std::size_t columns = 1; columns < 130; ++columns) {
    terminal.columns = columns;
    EXPECT_LT(progress_line(terminal, std::string(60, 'x'), 3, 4).size(), columns + 1);
  }
}

}  // namespace
}  // namespace gpupool::tools
