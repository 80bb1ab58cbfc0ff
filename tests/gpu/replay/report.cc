#include "tests/gpu/replay/report.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <optional>

#include "tools/terminal/units.h"

namespace gpupool::gpu_tests {
namespace {

using tools::fixed;

constexpr double kNsPerMs = 1e6;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

std::string hex(std::uint64_t value) {
  char text[2 + 16 + 1];
  std::snprintf(text, sizeof text, "0x%" PRIx64, value);
  return text;
}

Json to_json(const PassFigures& pass) {
  Json driver = Json::object();
  for (std::size_t i = 0; i < kDriverOperationCount; ++i) {
    driver[to_string(static_cast<DriverOperation>(i))] = {{"calls", pass.driver[i].calls},
                                                          {"ns", pass.driver[i].ns}};
  }
  return {{"operations", pass.operations},
          {"failed", pass.failed},
          {"served_after_wait", pass.served_after_wait},
          {"seconds", pass.seconds},
          {"peak_requested_bytes", pass.peak_requested_bytes},
          {"peak_held_bytes", pass.peak_held_bytes},
          {"pages_recycled", pass.pages_recycled},
          {"driver_wait_ns", pass.driver_wait_ns},
          {"driver", driver},
          {"wrong_words", pass.wrong_words}};
}

Json to_json(const std::optional<RunFigures>& run) {
  if (!run) return nullptr;
  Json passes = Json::array();
  for (const PassFigures& pass : run->passes) passes.push_back(to_json(pass));
  Json first = nullptr;
  if (run->mismatches.words != 0) {
    first = {{"address", hex(run->mismatches.first_address)},
             {"expected", hex(run->mismatches.first_expected)},
             {"found", hex(run->mismatches.first_found)}};
  }
  return {{"error", text_or_null(run->error)},
          {"wrong_words", run->mismatches.words},
          {"first_wrong_word", first},
          {"passes", passes}};
}

double driver_ms(const PassFigures& pass) {
  std::uint64_t ns = 0;
  for (const DriverFigures& figures : pass.driver) ns += figures.ns;
  return static_cast<double>(ns) / kNsPerMs;
}

std::string to_text(Mode mode, const RunFigures& run) {
  std::string text = std::string("    ") + to_string(mode) + ": ";
  if (run.passes.empty()) return text + "not measured: " + run.error + "\n";
  double ratio = 0;
  std::uint64_t failed = 0;
  std::uint64_t waited = 0;
  for (const PassFigures& pass : run.passes) {
    if (pass.peak_requested_bytes != 0) {
      ratio = std::max(ratio, static_cast<double>(pass.peak_held_bytes) /
                                  static_cast<double>(pass.peak_requested_bytes));
    }
    failed += pass.failed;
    waited += pass.served_after_wait;
  }
  const PassFigures& last = run.passes.back();
  text += "held/requested " + fixed(ratio, 3) + ", driver ms " +
          fixed(driver_ms(run.passes.front()), 1) + " cold";
  if (run.passes.size() > 1) text += ", " + fixed(driver_ms(last), 1) + " warm";
  text += ", waited ms " + fixed(static_cast<double>(last.driver_wait_ns) / kNsPerMs, 1) + ", " +
          std::to_string(last.pages_recycled) + " pages moved";
  if (mode == Mode::busy) {
    text += ", " + std::to_string(run.mismatches.words) + " wrong words, " +
            fixed(last.seconds, 2) + " s";
  }
  if (waited != 0) text += ", " + std::to_string(waited) + " served after a wait";
  if (failed != 0) text += ", FAILED " + std::to_string(failed);
  if (run.mismatches.words != 0) {
    text += "; the first at " + hex(run.mismatches.first_address) + ": expected " +
            hex(run.mismatches.first_expected) + ", found " + hex(run.mismatches.first_found);
  }
  if (!run.error.empty()) text += "; NOT to its end: " + run.error;
  return text + "\n";
}

}  // namespace

Json to_json(const Setting& setting) {
  return {{"name", setting.name},
          {"recycling", to_string(setting.runtime.recycling)},
          {"slack", setting.runtime.slack},
          {"alias_reuse", to_string(setting.runtime.alias_reuse)},
          {"is_tight", setting.is_tight},
          {"completions", setting.honours_completions},
          {"maintained", setting.maintains_inline ? "inline" : "thread"},
          {"is_behind", setting.is_behind},
          {"is_paced", setting.is_paced}};
}

Json to_json(const TraceFigures& figures) {
  Json json = {{"trace", figures.trace},
               {"setting", figures.setting},
               {"trace_seconds", or_null(figures.trace_seconds)},
               {"capacity_bytes", or_null(figures.capacity_bytes)}};
  for (const Mode mode : {Mode::modelled, Mode::idle, Mode::busy}) {
    json[to_string(mode)] = to_json(figures.runs[static_cast<std::size_t>(mode)]);
  }
  return json;
}

Json to_json(const AliasCase& figures) {
  return {{"reader", figures.reader}, {"is_alias", figures.is_alias},
          {"rounds", figures.rounds}, {"rounds_already_there", figures.rounds_already_there},
          {"words", figures.words},   {"old_words", figures.old_words}};
}

Json to_json(const ChainCase& figures) {
  return {{"alias_reuse", to_string(figures.alias_reuse)},
          {"links", figures.links},
          {"pages_recycled", figures.pages_recycled},
          {"served_after_wait", figures.served_after_wait},
          {"wrong_words", figures.wrong_words},
          {"error", text_or_null(figures.error)}};
}

std::string to_text(const TraceFigures& figures) {
  std::string text = "  " + figures.trace + ", " + figures.setting + "\n";
  for (const Mode mode : {Mode::modelled, Mode::idle, Mode::busy}) {
    const auto& run = figures.runs[static_cast<std::size_t>(mode)];
    if (run) text += to_text(mode, *run);
  }
  return text;
}

std::string to_text(const AliasCase& figures) {
  return "  reader: " + figures.reader + ", at " +
         (figures.is_alias ? "the other address: " : "the same address:  ") +
         std::to_string(figures.old_words) + " of " + std::to_string(figures.words) +
         " words were old, there before the write in " +
         std::to_string(figures.rounds_already_there) + " of " + std::to_string(figures.rounds) +
         " rounds\n";
}

std::string to_text(const ChainCase& figures) {
  std::string text = std::string("  dependent launches, ") + to_string(figures.alias_reuse) + ": ";
  if (!figures.error.empty()) return text + "not measured: " + figures.error + "\n";
  return text + std::to_string(figures.wrong_words) + " wrong words in " +
         std::to_string(figures.links) + " links, " + std::to_string(figures.pages_recycled) +
         " pages moved, " + std::to_string(figures.served_after_wait) + " served after a wait\n";
}

}  // namespace gpupool::gpu_tests
