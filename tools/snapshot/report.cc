#include "tools/snapshot/report.h"

#include <algorithm>
#include <ctime>
#include <vector>

#include "tools/terminal/table.h"
#include "tools/terminal/units.h"

namespace gpupool::tools {
namespace {

std::string share(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return "-";
  return fixed(100 * static_cast<double>(part) / static_cast<double>(whole), 1);
}

std::string head(const SnapshotFile& file) {
  std::string text = "pool " + file.pool + ", " + utc_text(file.time_ms) + ", holds " +
                     human_bytes(file.held_bytes) + " of " + human_bytes(file.limit_in_force_bytes);
  if (file.fallback_blocks != 0) text += ", " + grouped(file.fallback_blocks) + " fallbacks";
  return text;
}

std::string states(const SnapshotFile& file, const Terminal& terminal) {
  Table table({{"state", true, false},
               {"blocks", false, false},
               {"bytes", false, false},
               {"% of held", false, false}});
  for (const SnapshotState& state : file.states) {
    table.add_row({{state.name},
                   {grouped(state.blocks)},
                   {human_bytes(state.bytes)},
                   {share(state.bytes, file.held_bytes)}});
  }
  return table.render(terminal);
}

std::string tags(const SnapshotFile& file, const Terminal& terminal) {
  std::vector<SnapshotTag> sorted = file.tags;
  std::erase_if(sorted, [](const SnapshotTag& tag) { return tag.blocks == 0; });
  std::ranges::stable_sort(sorted, std::ranges::greater(), &SnapshotTag::bytes);
  std::uint64_t all = 0;
  for (const SnapshotTag& tag : sorted) all += tag.bytes;
  if (sorted.size() > kTagsShown + 1) {
    SnapshotTag rest{.name = std::to_string(sorted.size() - kTagsShown) + " others"};
    for (std::size_t i = kTagsShown; i < sorted.size(); ++i) {
      rest.blocks += sorted[i].blocks;
      rest.bytes += sorted[i].bytes;
    }
    sorted.resize(kTagsShown);
    sorted.push_back(rest);
  }
  if (sorted.empty()) return "nothing is live\n";
  Table table({{"tag", true, false},
               {"blocks", false, false},
               {"asked for", false, false},
               {"% of live", false, false}});
  for (const SnapshotTag& tag : sorted) {
    table.add_row(
        {{tag.name}, {grouped(tag.blocks)}, {human_bytes(tag.bytes)}, {share(tag.bytes, all)}});
  }
  return table.render(terminal);
}

}  // namespace

std::string utc_text(std::uint64_t unix_ms) {
  const auto seconds = static_cast<std::time_t>(unix_ms / 1000);
  std::tm parts{};
  char text[40] = "";
  if (gmtime_r(&seconds, &parts) != nullptr) {
    std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", &parts);
  }
  return text;
}

std::string to_text(const SnapshotFile& file, const Terminal& terminal) {
  std::string text = terminal.styled(head(file), Style::dim) + "\n\n";
  text += "largest free block     " + human_bytes(file.largest_free_block_bytes) + "\n";
  text += "largest request served " + human_bytes(file.largest_satisfiable_bytes) + "\n";
  text += "fragmentation          " + fixed(100 * file.fragmentation_ratio, 1) + " %\n\n";
  return text + states(file, terminal) + "\n" + tags(file, terminal);
}

}  // namespace gpupool::tools
