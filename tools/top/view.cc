#include "tools/top/view.h"

#include <algorithm>
#include <array>
#include <utility>

#include "tools/terminal/table.h"
#include "tools/terminal/units.h"

namespace gpupool::tools {
namespace {

constexpr const char* kUnknown = "-";

/// "45 s", "12 min", "3.4 h", "5 d": how long until, with no more digits than are known.
std::string duration_text(double seconds) {
  if (seconds < 90) return fixed(seconds, 0) + " s";
  if (seconds < 90 * 60) return fixed(seconds / 60, 0) + " min";
  if (seconds < 36 * 3600) return fixed(seconds / 3600, 1) + " h";
  return fixed(seconds / 86400, 0) + " d";
}

Style style_of(Health health) {
  switch (health) {
    case Health::out_of_memory:
    case Health::no_answer:
    case Health::at_risk: return Style::red;
    case Health::fragmented: return Style::bold;
    case Health::ok: return Style::plain;
  }
  return Style::plain;
}

std::vector<Cell> row_of(const Rank& rank) {
  const Cell state{to_string(rank.health), style_of(rank.health)};
  if (rank.health == Health::no_answer) {
    std::vector<Cell> cells(12, Cell{kUnknown, Style::dim});
    cells[0] = {rank.rank.empty() ? kUnknown : rank.rank};
    cells[1] = {rank.where};
    cells[2] = state;
    return cells;
  }
  return {
      {rank.rank.empty() ? kUnknown : rank.rank},
      {rank.where},
      state,
      {human_bytes(rank.largest_bytes), rank.health == Health::ok ? Style::plain : Style::bold},
      {rank.full_in_s ? duration_text(*rank.full_in_s) : kUnknown,
       rank.full_in_s ? Style::bold : Style::dim},
      {fixed(100 * rank.headroom(), 0) + " %"},
      {human_bytes(rank.live_bytes)},
      {human_bytes(rank.held_bytes)},
      {human_bytes(rank.limit_bytes)},
      {fixed(rank.fragmentation, 2)},
      {grouped(rank.failures), rank.failures > 0 ? Style::bold : Style::dim},
      {rank.requests_per_s ? grouped(static_cast<std::uint64_t>(*rank.requests_per_s)) : kUnknown},
  };
}

std::string summary(const std::vector<Rank>& ranks, const Terminal& terminal) {
  std::array<std::size_t, 5> counts{};
  for (const Rank& rank : ranks) ++counts[static_cast<std::size_t>(rank.health)];
  std::string text = std::to_string(ranks.size()) + (ranks.size() == 1 ? " pool:" : " pools:");
  const char* separator = " ";
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    const auto health = static_cast<Health>(i);
    text += separator +
            terminal.styled(std::to_string(counts[i]) + " " + to_string(health), style_of(health));
    separator = ", ";
  }
  return text + "\n\n";
}

/// As wide as the terminal: a line that is broken moves all below it.
std::string cut(std::string text, const Terminal& terminal) {
  if (terminal.is_terminal && text.size() > terminal.columns) text.resize(terminal.columns);
  return text;
}

/// Where there is less room, what says least about who fails first is left out.
std::vector<std::size_t> columns_that_fit(std::size_t room) {
  if (room >= 118) return {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  if (room >= 96) return {0, 1, 2, 3, 4, 5, 7, 8, 9, 10};
  return {0, 1, 2, 3, 4, 5, 10};
}

}  // namespace

std::string top_text(const std::vector<Rank>& ranks, const Terminal& terminal, std::size_t lines) {
  const std::vector<Column> all = {{"rank"},
                                   {"process", true},
                                   {"state", true},
                                   {"largest\nrequest", false, true},
                                   {"full\nin"},
                                   {"head-\nroom"},
                                   {"live", false, true},
                                   {"held"},
                                   {"limit"},
                                   {"frag-\nmentation", false, true},
                                   {"failed"},
                                   {"requests/s"}};
  const auto chosen = columns_that_fit(terminal.is_terminal ? terminal.columns : 1000);
  std::vector<Column> columns;
  for (const std::size_t i : chosen) columns.push_back(all[i]);
  Table table(std::move(columns));
  // The summary and an empty line, two lines of headings, a rule, the line of those that are left
  // out, and one for whoever shows this.
  std::size_t used = 7;
  std::size_t shown = 0;
  for (const Rank& rank : ranks) {
    const std::size_t needed = rank.reason.empty() ? 1 : 2;
    if (lines > 0 && used + needed > lines) break;
    used += needed;
    ++shown;
    const std::vector<Cell> cells = row_of(rank);
    std::vector<Cell> row;
    for (const std::size_t i : chosen) row.push_back(cells[i]);
    table.add_row(std::move(row));
    if (!rank.reason.empty()) {
      table.add_line({cut("     " + rank.reason, terminal), Style::dim});
    }
  }
  std::string text = summary(ranks, terminal) + table.render(terminal);
  if (shown < ranks.size()) {
    text += "and " + std::to_string(ranks.size() - shown) + " more, which are no worse\n";
  }
  return text;
}

}  // namespace gpupool::tools
