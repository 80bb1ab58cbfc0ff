#include "tools/terminal/table.h"

#include <algorithm>
#include <utility>

namespace gpupool::tools {
namespace {

constexpr std::size_t kGap = 1;
constexpr std::size_t kGroupGap = 2;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines(1);
  for (const char c : text) {
    if (c == '\n') {
      lines.emplace_back();
    } else {
      lines.back() += c;
    }
  }
  return lines;
}

std::size_t gap_before(const std::vector<Column>& columns, std::size_t i) {
  if (i == 0) return 0;
  return columns[i].starts_group ? kGroupGap : kGap;
}

/// Padding is put outside the colour, so that it does not count as text.
void append_cell(std::string& line, const Cell& cell, const Column& column, std::size_t width,
                 const Terminal& terminal) {
  const std::size_t padding = width - std::min(width, cell.text.size());
  if (!column.is_left) line.append(padding, ' ');
  line += terminal.styled(cell.text, cell.style);
  if (column.is_left) line.append(padding, ' ');
}

void end_line(std::string& text, std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  text += line + "\n";
}

}  // namespace

std::vector<std::size_t> Table::widths() const {
  std::vector<std::size_t> result(columns_.size(), 0);
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    for (const std::string& line : lines_of(columns_[i].heading)) {
      result[i] = std::max(result[i], line.size());
    }
    for (const auto& row : rows_) {
      if (row.size() == 1) continue;
      result[i] = std::max(result[i], row[i].text.size());
    }
  }
  return result;
}

/// Names of groups; empty where no group has one.
std::string Table::group_line(const std::vector<std::size_t>& width,
                              const Terminal& terminal) const {
  std::string line;
  bool is_named = false;
  for (std::size_t i = 0; i < columns_.size();) {
    line.append(gap_before(columns_, i), ' ');
    const std::string& name = columns_[i].group;
    std::size_t room = width[i];
    for (++i; i < columns_.size() && !columns_[i].starts_group; ++i) {
      room += gap_before(columns_, i) + width[i];
    }
    const std::size_t rest = room - std::min(room, name.size());
    line.append(rest / 2, ' ');
    line += terminal.styled(name, Style::bold);
    line.append(rest - rest / 2, ' ');
    is_named = is_named || !name.empty();
  }
  return is_named ? line : std::string();
}

std::string Table::render(const Terminal& terminal) const {
  const std::vector<std::size_t> width = widths();
  std::vector<std::vector<std::string>> headings;
  std::size_t heading_lines = 1;
  for (const Column& column : columns_) {
    headings.push_back(lines_of(column.heading));
    heading_lines = std::max(heading_lines, headings.back().size());
  }

  std::string text;
  if (std::string line = group_line(width, terminal); !line.empty())
    end_line(text, std::move(line));
  for (std::size_t n = 0; n < heading_lines; ++n) {
    std::string line;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      line.append(gap_before(columns_, i), ' ');
      const std::size_t above = heading_lines - headings[i].size();
      const Cell cell{n < above ? std::string() : headings[i][n - above], Style::bold};
      append_cell(line, cell, columns_[i], width[i], terminal);
    }
    end_line(text, std::move(line));
  }
  std::string rule;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    rule.append(gap_before(columns_, i), columns_[i].starts_group ? ' ' : '-');
    rule.append(width[i], '-');
  }
  end_line(text, terminal.styled(rule, Style::dim));
  for (const auto& row : rows_) {
    if (row.size() == 1) {
      text += terminal.styled(row[0].text, row[0].style) + "\n";
      continue;
    }
    std::string line;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      line.append(gap_before(columns_, i), ' ');
      append_cell(line, row[i], columns_[i], width[i], terminal);
    }
    end_line(text, std::move(line));
  }
  return text;
}

}  // namespace gpupool::tools
