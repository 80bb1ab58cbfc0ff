// An aligned text table: a heading of one or more lines, a rule, rows, lines between them. Columns
// that belong together stand close, a wider gap goes before a group.
//
// Thread safety: one thread. Cost: strings; for results, not for logs.
#ifndef GPUPOOL_TOOLS_TERMINAL_TABLE_H_
#define GPUPOOL_TOOLS_TERMINAL_TABLE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "tools/terminal/terminal.h"

namespace gpupool::tools {

struct Column {
  std::string heading;  // lines parted by '\n', set at the bottom
  bool is_left = false;
  bool starts_group = false;
  std::string group;  // above the group that this column starts, in its middle
};

struct Cell {
  std::string text;
  Style style = Style::plain;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  /// Requires: a cell for each column, of which there are several.
  void add_row(std::vector<Cell> cells) { rows_.push_back(std::move(cells)); }
  /// A line across all columns, which may be empty: a name of the rows below it.
  void add_line(Cell cell) { rows_.push_back({std::move(cell)}); }
  /// The whole table, each line ended. Text of one byte a character, for alignment.
  std::string render(const Terminal& terminal) const;

 private:
  std::vector<std::size_t> widths() const;
  std::string group_line(const std::vector<std::size_t>& width, const Terminal& terminal) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;  // of a line: one cell
};

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_TERMINAL_TABLE_H_
