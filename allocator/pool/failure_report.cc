// The report of a request that failed, for a person.
#include "gpupool/failure_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <string>

#include "base/hex_text.h"

namespace gpupool {
namespace {

/// Two decimals in the unit a person would use: a report is read, not parsed.
std::string human(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  const auto hundredths = static_cast<std::uint64_t>(std::llround(value * 100));
  std::string text = std::to_string(hundredths / 100);
  if (unit > 0) {
    const std::string decimals = std::to_string(hundredths % 100);
    text.append(".").append(2 - decimals.size(), '0').append(decimals);
  }
  return text.append(" ").append(kUnits[unit]);
}

const char* explanation(MissReason reason) {
  switch (reason) {
    case MissReason::size: return "larger than the limit, whatever is free";
    case MissReason::budget: return "the limit or the device is full";
    case MissReason::pending: return "memory that would do is still in use by unfinished work";
    case MissReason::fragmented: return "enough bytes are free, but not in one piece";
    case MissReason::cold: return "the pool would have had to grow";
    case MissReason::invalid: return "not valid here";
    case MissReason::driver: return "a call of the driver has failed";
  }
  return "unknown";
}

const char* explanation(const FailureReport& report) {
  switch (report.cause) {
    case FailureCause::memory:
    case FailureCause::size: return explanation(report.reason);
    case FailureCause::alignment: return "its alignment is no power of two up to 2 MiB";
    case FailureCause::stream:
      return "its stream is not one of this pool's, was released, or its handle is another's now";
    case FailureCause::private_pool:
      return "the private pool that it names is one that only a capture may have";
    case FailureCause::capture:
      return "it waits for the legacy default stream, which a capture that is under way forbids";
    case FailureCause::handle:
      return "the driver does not know its stream, or the pool has no place for another one";
    case FailureCause::guard:
      return "there was a block, but the driver would not fill it for scrub, poison or canary";
    case FailureCause::event:
      return "there was a block, but the driver would not say when other work on it is over";
    case FailureCause::driver:
      if (report.error == Error::not_supported) return "the device does not support this form";
      return "a call of the driver has failed";
  }
  return "unknown";
}

/// In the largest unit in which it is 1 or more.
std::string human_time(std::uint64_t ns) {
  static constexpr std::array<const char*, 4> kUnits = {"ns", "us", "ms", "s"};
  auto value = static_cast<double>(ns);
  std::size_t unit = 0;
  for (; value >= 1000 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  std::array<char, 48> text;
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text.data();
}

std::string limit_name(const FailureReport& report) {
  if (report.limit_kind == LimitKind::device) {
    return "the device has no more; capacity " + human(report.limit_bytes);
  }
  if (report.limit_kind == LimitKind::capacity_bytes) return "capacity";
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "capacity: %.6g of what the device had free",
                report.capacity_fraction);
  return text.data();
}

/// Who asked too much, and how much would have been right.
std::string verdict(const FailureReport& report) {
  std::string text =
      std::string(to_string(report.error)) + ": " + human(report.requested_bytes) + " requested";
  if (static_cast<std::size_t>(report.reason) < kMemoryReasonCount) {
    text += ", at most " + human(report.largest_satisfiable_bytes) + " would have worked";
  }
  text += std::string("; reason ") + to_string(report.reason) + " (" + explanation(report) + ")";
  if (report.is_address_space_used_up) text += "; the address space has no room for it";
  return text;
}

std::string tried(const FailureReport& report) {
  std::string text;
  for (std::size_t i = 0; i < kLadderRungCount; ++i) {
    if (!report.rungs[i].was_tried) continue;
    text += (text.empty() ? "" : ", ") + std::string(to_string(static_cast<LadderRung>(i))) + " " +
            human(report.rungs[i].gave_bytes);
    const auto rung = static_cast<LadderRung>(i);
    if (rung == LadderRung::wait) text += " in " + human_time(report.waited_ns);
    if (rung == LadderRung::callback) text += ", retries " + std::to_string(report.retries);
  }
  return text.empty() ? "nothing" : text;
}

std::string tags(const FailureReport& report) {
  constexpr std::size_t kShown = 6;
  std::string text;
  std::uint64_t rest = 0;
  for (std::size_t i = 0; i < report.live_by_tag.size(); ++i) {
    const TagBytes& tag = report.live_by_tag[i];
    if (i >= kShown) {
      rest += tag.bytes;
    } else {
      text += (text.empty() ? "" : ", ") + tag.tag + " " + human(tag.bytes);
    }
  }
  return rest > 0 ? text + ", others " + human(rest) : text;
}

/// The number that the driver gave it, and the handle that the program knows it by.
std::string stream_text(std::uint64_t id, std::optional<std::uint64_t> handle) {
  return std::to_string(id) + (handle.has_value() ? " (" + internal::hex(*handle) + ")" : "");
}

std::string streams(const FailureReport& report) {
  std::string text;
  for (const PendingOfStream& pending : report.pending_streams) {
    text += (text.empty() ? "stream " : ", ") +
            stream_text(pending.stream_id, pending.stream_handle) + ": " + human(pending.bytes) +
            (pending.is_awaited ? "" : " (no event can tell when)");
  }
  if (report.pending_elsewhere_bytes == 0) return text;
  return text + (text.empty() ? "" : ", ") +
         "several or others: " + human(report.pending_elsewhere_bytes);
}

/// A row: what, how much, right-aligned, and a remark.
std::string row(const char* name, const std::string& amount, const std::string& remark) {
  std::array<char, 64> start;
  std::snprintf(start.data(), start.size(), "\n  %-9s %12s", name, amount.c_str());
  return start.data() + (remark.empty() ? std::string() : "  " + remark);
}

std::string misses(const FailureReport& report) {
  constexpr std::size_t kShown = 6;
  std::string text;
  const std::size_t count = std::min(kShown, report.last_misses.size());
  for (std::size_t i = 0; i < count; ++i) {
    const MissRecord& miss = report.last_misses[i];
    const std::uint64_t age = report.time_ns - std::min(report.time_ns, miss.time_ns);
    text +=
        row(i == 0 ? "misses" : "", human(miss.bytes),
            human_time(age) + " ago, stream " + stream_text(miss.stream_id, miss.stream_handle) +
                ", " + to_string(miss.reason) + (miss.failed ? ", failed" : ""));
  }
  return text;
}

std::string process_gone(const FailureReport& report) {
  return std::string(to_string(report.error)) +
         ": this process was forked from the one that made the pool, or exits; a forked child has "
         "no access to the device and must not use the pool";
}

}  // namespace

std::string FailureReport::headline() const {
  if (!happened) return "no request has failed";
  if (is_process_gone) return process_gone(*this);
  std::string text = verdict(*this) + "; limit " + human(limit_in_force_bytes) + " (" +
                     limit_name(*this) + "), held " + human(held_bytes) + " = live " +
                     human(live_requested_bytes) + " + waste " + human(waste_bytes) + " + cached " +
                     human(cached_bytes) + " + pending " + human(pending_bytes) + " + free " +
                     human(free_bytes) + "; largest free block " + human(largest_free_block_bytes) +
                     "; device free " + human(device_free_bytes) + " of " +
                     human(device_total_bytes);
  if (waited_ns > 0) text += "; waited " + human_time(waited_ns);
  return text;
}

std::string FailureReport::text() const {
  if (!happened) return "no request has failed";
  if (is_process_gone) return process_gone(*this);
  std::string asked = "alignment " + human(requested_alignment);
  if (is_contiguous) asked += ", contiguous";
  if (stream_id != 0) asked += ", stream " + stream_text(stream_id, stream_handle);
  if (!tag.empty()) asked += ", tag " + tag;
  return verdict(*this) + row("request", human(requested_bytes), asked) +
         row("limit", human(limit_in_force_bytes), limit_name(*this)) +
         row("held", human(held_bytes), "pool " + pool + ", of which") +
         row("  live", human(live_requested_bytes), tags(*this)) +
         row("  waste", human(waste_bytes), "") + row("  cached", human(cached_bytes), "") +
         row("  pending", human(pending_bytes), streams(*this)) +
         row("  free", human(free_bytes), "largest piece " + human(largest_free_block_bytes)) +
         row("device", human(device_total_bytes), human(device_free_bytes) + " of it free") +
         "\n  tried     " + tried(*this) + misses(*this);
}

}  // namespace gpupool
