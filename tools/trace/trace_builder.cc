#include "tools/trace/trace_builder.h"

#include <algorithm>
#include <utility>

namespace gpupool::tools {
namespace {

std::string block_text(std::uint64_t id) { return "block " + std::to_string(id); }
std::string on_line(std::size_t line) { return " on line " + std::to_string(line); }

}  // namespace

TraceBuilder::TraceBuilder(std::size_t operations_hint) {
  trace_.operations.reserve(operations_hint);
  blocks_.reserve(operations_hint / 2);
}

std::string TraceBuilder::allocate(std::uint64_t id, std::uint64_t bytes, std::uint64_t stream,
                                   std::uint64_t dt_us, std::size_t line) {
  const auto found = blocks_.find(id);
  if (found != blocks_.end() && found->second.state == State::live) {
    return "allocates " + block_text(id) + ", which is live (allocated" +
           on_line(found->second.line) + ")";
  }
  if (block_count_ == kMaxBlocks) return "more than " + std::to_string(kMaxBlocks) + " blocks";
  Block block;
  if (!find_stream(stream, block.stream)) {
    return "more than " + std::to_string(kMaxStreams) + " streams";
  }
  if (std::string reason = advance(dt_us); !reason.empty()) return reason;

  block.number = static_cast<std::uint32_t>(block_count_++);
  block.line = line;
  append(OperationKind::allocate, block, bytes, dt_us);
  if (found != blocks_.end()) {
    found->second = block;
  } else {
    blocks_.emplace(id, block);
  }
  return {};
}

std::string TraceBuilder::free(std::uint64_t id, std::uint64_t dt_us, std::size_t line,
                               std::optional<std::uint64_t> stream) {
  const auto found = blocks_.find(id);
  if (found == blocks_.end()) return "frees unknown " + block_text(id);
  Block& block = found->second;
  if (block.state != State::live) {
    return "frees " + block_text(id) + " twice (" +
           (block.state == State::freed ? "freed" : "completed") + on_line(block.line) + ")";
  }
  std::uint16_t freed_on = block.stream;
  if (stream.has_value() && !find_stream(*stream, freed_on)) {
    return "more than " + std::to_string(kMaxStreams) + " streams";
  }
  if (std::string reason = advance(dt_us); !reason.empty()) return reason;

  block.stream = freed_on;
  block.state = State::freed;
  block.line = line;
  block.free_operation = trace_.operations.size();
  append(OperationKind::free, block, 0, dt_us);
  return {};
}

std::string TraceBuilder::complete(std::uint64_t id, std::uint64_t dt_us, std::size_t line) {
  const auto found = blocks_.find(id);
  if (found == blocks_.end()) return "completes unknown " + block_text(id);
  Block& block = found->second;
  if (block.state == State::live) {
    return "completes " + block_text(id) + ", which is not freed (allocated" + on_line(block.line) +
           ")";
  }
  if (block.state == State::completed) {
    return "completes " + block_text(id) + " twice (completed" + on_line(block.line) + ")";
  }
  if (std::string reason = advance(dt_us); !reason.empty()) return reason;

  block.state = State::completed;
  block.line = line;
  trace_.operations[block.free_operation].completes_later = true;
  append(OperationKind::complete, block, 0, dt_us);
  return {};
}

Trace TraceBuilder::finish() {
  assign_slots();
  trace_.operation_count = static_cast<std::uint64_t>(
      std::count_if(trace_.operations.begin(), trace_.operations.end(),
                    [](const Operation& o) { return o.kind != OperationKind::complete; }));
  return std::move(trace_);
}

bool TraceBuilder::find_stream(std::uint64_t number, std::uint16_t& index) {
  std::vector<std::uint64_t>& streams = trace_.streams;
  const auto found = std::find(streams.begin(), streams.end(), number);
  if (found == streams.end() && streams.size() == kMaxStreams) return false;
  index = static_cast<std::uint16_t>(found - streams.begin());
  if (found == streams.end()) streams.push_back(number);
  return true;
}

std::string TraceBuilder::advance(std::uint64_t dt_us) {
  if (dt_us > kMaxRecordedUs - recorded_us_) {
    return "the recorded time is longer than " + std::to_string(kMaxRecordedUs) + " us";
  }
  recorded_us_ += dt_us;
  return {};
}

void TraceBuilder::append(OperationKind kind, const Block& block, std::uint64_t bytes,
                          std::uint64_t dt_us) {
  Operation operation;
  operation.bytes = bytes;
  operation.dt_us = dt_us;
  operation.slot = block.number;
  operation.stream = block.stream;
  operation.kind = kind;
  trace_.operations.push_back(operation);
}

// Until here an operation's slot is its block's number. A replay keeps an address for each slot,
// and with one for each block that table alone would push the pool's own out of the cache.
void TraceBuilder::assign_slots() {
  std::vector<std::uint32_t> slot_of_block(block_count_);
  std::vector<std::uint32_t> free_slots;
  std::uint32_t slot_count = 0;
  for (Operation& operation : trace_.operations) {
    std::uint32_t& slot = slot_of_block[operation.slot];
    if (operation.kind == OperationKind::allocate) {
      if (free_slots.empty()) {
        slot = slot_count++;
      } else {
        slot = free_slots.back();
        free_slots.pop_back();
      }
    } else if (!operation.completes_later) {
      free_slots.push_back(slot);
    }
    operation.slot = slot;
  }
  trace_.slot_count = slot_count;
}

}  // namespace gpupool::tools
