#include <atomic>
#include <chrono>
#include <string>
#include <utility>

#include "gpupool/exporter/event_log.h"
#include "gpupool/exporter/exporter.h"
#include "integrations/torch/plugin/log.h"
#include "integrations/torch/plugin/serving.h"

namespace gpupool::torch {
namespace {

// Never stopped: that takes up to 2 s, and would be at the process's end.
std::atomic<Exporter*> process_exporter{nullptr};

}  // namespace

SlowPathObserver* keep_events(ExporterOptions& options) {
  if (!options.enabled) return nullptr;
  auto* const log = new EventLog();
  options.events = log;
  return log;
}

Result<std::string, Status> serve(Pool& pool, const Config& config, const EventLog* events) {
  if (Exporter* const exporter = process_exporter.load()) {
    if (auto added = exporter->add(pool, events); !added.ok()) return added.error();
    return exporter->url();
  }
  ExporterOptions options = config.exporter;
  options.events = events;
  options.log = [](const std::string& line) { log_line(line); };
  // The plug-in has an upkeep thread of its own, with or without an exporter.
  auto started = Exporter::start(pool, options, std::chrono::milliseconds(0));
  if (!started.ok()) return started.error();
  Exporter* const exporter = std::move(started).value().release();
  exporter->enable_reload(config);
  process_exporter.store(exporter);
  return exporter->url();
}

void retire_serving() {
  if (Exporter* const exporter = process_exporter.load()) exporter->retire();
}

}  // namespace gpupool::torch
