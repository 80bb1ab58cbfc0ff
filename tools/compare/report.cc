#include "tools/compare/report.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "tools/seconds.h"
#include "tools/terminal/table.h"
#include "tools/terminal/units.h"

namespace gpupool::tools {
namespace {

using Json = nlohmann::ordered_json;
using baselines::CatalogEntry;

Json to_json(const ClassicRow& row) {
  return {{"system", row.system->name},
          {"pass", row.is_warm ? "warm" : "cold"},
          {"blocks", kClassicBlocks},
          {"block_bytes", kClassicBlockBytes},
          {"failed", row.failed},
          {"ns_per_allocate", row.allocate.ns_per_block},
          {"ns_per_free", row.free.ns_per_block},
          {"driver_calls_allocate", row.allocate.driver_calls},
          {"driver_calls_free", row.free.driver_calls},
          {"driver_seconds_allocate", row.allocate.driver_seconds},
          {"driver_seconds_free", row.free.driver_seconds},
          {"total_seconds", row.total_seconds()},
          {"peak_requested_bytes", kClassicBlocks * kClassicBlockBytes},
          {"peak_held_bytes", row.peak_held_bytes}};
}

Json to_json(const TraceRow& row) {
  return {{"trace", row.trace_path},
          {"system", row.system->name},
          {"operations", row.operations},
          {"failed", row.failed},
          {"ns_per_op", row.warm_ns_per_op},
          {"ns_per_op_cold", row.cold_ns_per_op},
          {"ns_per_op_with_driver", row.warm_total_ns_per_op()},
          {"driver_calls_cold", row.cold_driver_calls},
          {"driver_calls_warm", row.warm_driver_calls},
          {"driver_seconds_cold", row.cold_driver_seconds},
          {"driver_seconds_warm", row.warm_driver_seconds},
          {"peak_requested_bytes", row.peak_requested_bytes},
          {"peak_held_bytes", row.peak_held_bytes}};
}

/// "1.053"; a dash where requests failed, since less was then held because less was served.
std::string held_ratio(std::uint64_t held, std::uint64_t requested, std::uint64_t failed) {
  if (requested == 0 || failed != 0) return "-";
  return fixed(static_cast<double>(held) / static_cast<double>(requested), 3);
}

/// Three digits or all of them: "8.4", "84.2", "842", "41 092".
std::string short_number(double number) {
  if (number >= 99.95) return grouped(static_cast<std::uint64_t>(std::llround(number)));
  return fixed(number, 1);
}

/// How many times as long as ours: "3.1x". A dash where ours is not there.
std::string times_ours(double value, double ours) {
  if (ours <= 0) return "-";
  const double times = value / ours;
  return (times < 9.995 ? fixed(times, 2) : short_number(times)) + "x";
}

Cell name_cell(const CatalogEntry& entry) {
  return {(entry.is_ours ? "* " : "  ") + std::string(entry.name),
          entry.is_ours ? Style::bold : Style::plain};
}

Cell failed_cell(std::uint64_t failed) {
  return {grouped(failed), failed != 0 ? Style::red : Style::plain};
}

/// Of ours on the trace that `first` and what follows it are about; 0 where ours is not there.
double total_of_ours(const std::vector<TraceRow>& rows, std::size_t first) {
  for (std::size_t i = first; i < rows.size(); ++i) {
    if (rows[i].trace_path != rows[first].trace_path) break;
    if (rows[i].system->is_ours) return rows[i].warm_total_ns_per_op();
  }
  return 0;
}

/// Of ours in the rounds that are warm, or in the cold one; 0 where ours is not there.
double total_of_ours(const std::vector<ClassicRow>& rows, bool is_warm) {
  for (const ClassicRow& row : rows) {
    if (row.system->is_ours && row.is_warm == is_warm) return row.total_seconds();
  }
  return 0;
}

void add_classic_rows(Table& table, const std::vector<ClassicRow>& rows, bool is_warm) {
  const double ours = total_of_ours(rows, is_warm);
  for (const ClassicRow& row : rows) {
    if (row.is_warm != is_warm) continue;
    table.add_row(
        {name_cell(*row.system),
         {short_number(row.allocate.ns_per_block)},
         {short_number(row.free.ns_per_block)},
         {grouped(row.allocate.driver_calls)},
         {grouped(row.free.driver_calls)},
         {short_number(row.allocate.driver_seconds * kMsPerSecond)},
         {short_number(row.free.driver_seconds * kMsPerSecond)},
         {short_number(row.total_seconds() * kMsPerSecond)},
         {times_ours(row.total_seconds(), ours)},
         {human_bytes(row.peak_held_bytes)},
         {held_ratio(row.peak_held_bytes, kClassicBlocks * kClassicBlockBytes, row.failed)},
         failed_cell(row.failed)});
  }
}

std::string classic_table(const std::vector<ClassicRow>& rows, const Terminal& terminal) {
  Table table({{"system", true},
               {"alloc", false, true, "ns a block"},
               {"free", false},
               {"alloc", false, true, "driver calls"},
               {"free", false},
               {"alloc", false, true, "driver ms"},
               {"free", false},
               {"ms", false, true, "in all"},
               {"x ours", false},
               {"held", false, true, "peak memory"},
               {"ratio", false},
               {"failed", false, true}});
  table.add_line({"the first time, cold", Style::bold});
  add_classic_rows(table, rows, false);
  table.add_line({});
  table.add_line({"again, warm", Style::bold});
  add_classic_rows(table, rows, true);
  return table.render(terminal);
}

std::string trace_table(const std::vector<TraceRow>& rows, const Terminal& terminal) {
  Table table({{"system", true},
               {"host", false, true, "ns per operation"},
               {"+ driver", false},
               {"x ours", false},
               {"cold", false, true, "driver calls"},
               {"warm", false},
               {"cold", false, true, "driver ms"},
               {"warm", false},
               {"held", false, true, "peak memory"},
               {"ratio", false},
               {"failed", false, true}});
  const TraceRow* last = nullptr;
  double ours = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const TraceRow& row = rows[i];
    if (last == nullptr || last->trace_path != row.trace_path) {
      if (last != nullptr) table.add_line({});
      ours = total_of_ours(rows, i);
      table.add_line({row.trace_name + ": " + grouped(row.operations) + " operations, " +
                          human_bytes(row.peak_requested_bytes) + " requested at the peak",
                      Style::bold});
    }
    last = &row;
    table.add_row({name_cell(*row.system),
                   {short_number(row.warm_ns_per_op)},
                   {short_number(row.warm_total_ns_per_op())},
                   {times_ours(row.warm_total_ns_per_op(), ours)},
                   {grouped(row.cold_driver_calls)},
                   {grouped(row.warm_driver_calls)},
                   {short_number(row.cold_driver_seconds * kMsPerSecond)},
                   {short_number(row.warm_driver_seconds * kMsPerSecond)},
                   {human_bytes(row.peak_held_bytes)},
                   {held_ratio(row.peak_held_bytes, row.peak_requested_bytes, row.failed)},
                   failed_cell(row.failed)});
  }
  return table.render(terminal);
}

}  // namespace

std::string to_json(const Comparison& comparison, const CompareOptions& options) {
  Json object = {{"device", "simulated"},
                 {"capacity_bytes", options.capacity_bytes},
                 {"passes", options.passes},
                 {"classic", Json::array()},
                 {"traces", Json::array()}};
  for (const ClassicRow& row : comparison.classic) object["classic"].push_back(to_json(row));
  for (const TraceRow& row : comparison.traces) object["traces"].push_back(to_json(row));
  // File names need not be UTF-8, JSON must be.
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string to_tables(const Comparison& comparison, const CompareOptions& options,
                      const Terminal& terminal) {
  const auto heading = [&terminal](const std::string& text) {
    return terminal.styled(text, Style::bold) + "\n\n";
  };
  const auto note = [&terminal](const std::string& text) {
    return terminal.styled(text, Style::dim) + "\n";
  };
  std::string text =
      note("Simulated device of " + human_bytes(options.capacity_bytes) + ", " +
           std::to_string(options.passes) +
           " passes: the first is cold, warm is the median of the others.") +
      "\n" +
      heading("Classic test: " + grouped(kClassicBlocks) + " blocks of " +
              std::to_string(kClassicBlockBytes >> 20) + " MiB, all allocated, then all freed") +
      classic_table(comparison.classic, terminal);
  if (!comparison.traces.empty()) {
    text += "\n" + heading("Recorded traces") + trace_table(comparison.traces, terminal);
  }
  text += "\n";
  for (const char* line :
       {"* gpupool, safe for threads, every check and statistic on; the others serve one thread, "
        "unlocked.",
        "ns: on this machine. Driver: its calls, and what an idle NVIDIA H200 was measured to take "
        "for",
        "them; the driver's own ns are the simulated device's. x ours: both together, by "
        "gpupool's.",
        "ratio: memory held over memory requested, at their peaks; none where requests failed."}) {
    text += note(line);
  }
  return text;
}

}  // namespace gpupool::tools
