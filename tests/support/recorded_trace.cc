#include "tests/support/recorded_trace.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

namespace gpupool {
namespace {

struct Block {
  std::uint64_t bytes = 0;
  std::uint64_t stream = 0;
};

/// Adds the event of a line; says what is wrong with it.
std::string add_event(const std::string& line, std::map<std::uint64_t, Block>& live,
                      RecordedTrace& trace) {
  std::istringstream fields(line);
  RecordedEvent event;
  std::uint64_t dt_us = 0;
  fields >> event.kind >> event.id;
  if (event.kind == 'a') {
    fields >> event.bytes >> event.stream >> dt_us;
    if (!fields) return "too few fields";
    if (!live.try_emplace(event.id, Block{event.bytes, event.stream}).second) return "id twice";
  } else if (event.kind == 'f') {
    fields >> dt_us;
    if (!fields) return "too few fields";
    const auto block = live.find(event.id);
    if (block == live.end()) return "frees what is not there";
    event.bytes = block->second.bytes;
    event.stream = block->second.stream;
    if (std::uint64_t other = 0; fields >> other) {
      if (other == event.stream) return "names the stream without need";
      event.stream = other;
    }
    fields.clear(fields.rdstate() & ~std::ios::failbit);
    live.erase(block);
  } else {
    return "an unknown kind";
  }
  if (std::string rest; fields >> rest) return "too many fields";
  event.time_us = dt_us + (trace.events.empty() ? 0 : trace.events.back().time_us);
  trace.events.push_back(event);
  return {};
}

}  // namespace

std::uint64_t RecordedTrace::count(char kind) const {
  return static_cast<std::uint64_t>(
      std::count_if(events.begin(), events.end(),
                    [&](const RecordedEvent& event) { return event.kind == kind; }));
}

bool RecordedTrace::has_remark(const std::string& part) const {
  return std::any_of(remarks.begin(), remarks.end(), [&](const std::string& remark) {
    return remark.find(part) != std::string::npos;
  });
}

std::string RecordedTrace::text() const {
  std::string result;
  for (const RecordedEvent& event : events) {
    if (!result.empty()) result += ' ';
    result += event.kind + std::to_string(event.bytes) + "/" + std::to_string(event.stream);
  }
  return result;
}

RecordedTrace read_recorded_trace(const std::string& path) {
  RecordedTrace trace;
  std::ifstream file(path, std::ios::binary);
  if (!file) trace.fault = path + ": cannot be read";
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  trace.bytes = text.size();
  if (!text.empty() && text.back() != '\n') trace.fault = "the last line is not whole";
  std::map<std::uint64_t, Block> live;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; trace.fault.empty() && std::getline(lines, line); ++number) {
    if (line.rfind('#', 0) == 0) {
      trace.remarks.push_back(line);
      continue;
    }
    const std::string fault = add_event(line, live, trace);
    if (!fault.empty()) trace.fault = "line " + std::to_string(number) + ": " + fault;
  }
  trace.live = live.size();
  return trace;
}

ScratchFile::ScratchFile() {
  static std::atomic<int> count{0};
  path_ = (std::filesystem::temp_directory_path() /
           ("gpupool_" + std::to_string(::getpid()) + "_" + std::to_string(++count) + ".trace"))
              .string();
}

ScratchFile::~ScratchFile() { std::remove(path_.c_str()); }

}  // namespace gpupool
