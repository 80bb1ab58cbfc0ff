// Counting requests that are no hit, and saying of one that failed why: the report's numbers.
#include <algorithm>
#include <variant>

#include "pool/pool_impl.h"

namespace gpupool {

using internal::kUnitBytes;
using internal::LadderLog;

namespace {

/// As the metrics call it.
constexpr const char* kUntaggedName = "untagged";

/// The most first; of equals in the order in which they are.
template <class T>
void sort_by_bytes(std::vector<T>& items) {
  std::stable_sort(items.begin(), items.end(),
                   [](const T& a, const T& b) { return a.bytes > b.bytes; });
}

/// Which limit is in force, and why.
LimitKind limit_kind(const FailureReport& report, const CapacityLimit& capacity) {
  if (report.limit_in_force_bytes < report.limit_bytes) return LimitKind::device;
  return std::holds_alternative<double>(capacity) ? LimitKind::capacity_fraction
                                                  : LimitKind::capacity_bytes;
}

/// The streams that pending bytes wait for, `bytes` by index.
void report_pending(const std::vector<std::uint64_t>& bytes, const internal::StreamTable& streams,
                    FailureReport& report) {
  for (internal::StreamIndex i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == 0) continue;
    report.pending_streams.push_back(
        {streams.id_of(i), streams.find_handle(i), bytes[i], streams.is_awaited(i)});
  }
  sort_by_bytes(report.pending_streams);
  if (report.pending_streams.size() > FailureReport::kMaxStreams) {
    report.further_pending_streams = report.pending_streams.size() - FailureReport::kMaxStreams;
    report.pending_streams.resize(FailureReport::kMaxStreams);
  }
  report.pending_elsewhere_bytes = report.pending_bytes;
  for (const PendingOfStream& pending : report.pending_streams) {
    report.pending_elsewhere_bytes -= std::min(report.pending_elsewhere_bytes, pending.bytes);
  }
}

/// By tag, and what has none.
void report_tags(const StatsV1& stats, const std::vector<std::string>& names,
                 FailureReport& report) {
  std::uint64_t untagged = stats.live_requested_bytes;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::uint64_t live = stats.tag_live_bytes[i];
    if (live > 0) report.live_by_tag.push_back({names[i], live});
    untagged -= std::min(untagged, live);
  }
  if (untagged > 0) report.live_by_tag.push_back({kUntaggedName, untagged});
  sort_by_bytes(report.live_by_tag);
}

MissReason reason_of(FailureCause cause) {
  switch (cause) {
    case FailureCause::memory: return MissReason::budget;
    case FailureCause::size: return MissReason::size;
    case FailureCause::alignment:
    case FailureCause::stream:
    case FailureCause::private_pool:
    case FailureCause::capture: return MissReason::invalid;
    case FailureCause::handle:
    case FailureCause::guard:
    case FailureCause::event:
    case FailureCause::driver: return MissReason::driver;
  }
  return MissReason::budget;
}

}  // namespace

void Pool::Impl::count_miss(const AllocationRequest& request, MissReason reason,
                            const StreamState* stream, const LadderLog& log) {
  if (log.has_given(LadderRung::wait)) reason = MissReason::pending;
  ++counted_.misses;
  ++counted_.misses_by_reason[static_cast<std::size_t>(reason)];
  misses_.note({pool_time(), request.bytes, stream->id(),
                internal::StreamTable::handle_of(stream->raw()), reason, false});
  emit({.kind = SlowPathEventKind::miss,
        .bytes = request.bytes,
        .stream_id = stream->id(),
        .miss_reason = reason});
}

Error Pool::Impl::fail(const AllocationRequest& request, internal::Fault fault,
                       const StreamState* stream) {
  return fail(report_of(request, fault, stream, LadderLog()));
}

Error Pool::Impl::fail(const FailureReport& report, bool was_served) {
  if (was_served) {
    ++failed_when_served_;
  } else {
    ++counted_.requests_by_size[internal::size_bucket(report.requested_bytes)];
    ++counted_.misses;
    ++counted_.misses_by_reason[static_cast<std::size_t>(report.reason)];
    if (recorder_ != nullptr) recorder_->note_failure(report.requested_bytes);
  }
  ++counted_.failures;
  ++counted_.failures_by_reason[static_cast<std::size_t>(report.reason)];
  misses_.note({report.time_ns, report.requested_bytes, report.stream_id, report.stream_handle,
                report.reason, true});
  last_failure_ = report;
  emit({.kind = SlowPathEventKind::failure,
        .bytes = report.requested_bytes,
        .stream_id = report.stream_id,
        .failed = true,
        .error = report.error,
        .miss_reason = report.reason,
        .report = &report});
  return report.error;
}

FailureReport Pool::Impl::report_of(const AllocationRequest& request, internal::Fault fault,
                                    const StreamState* stream, const LadderLog& log) {
  FailureReport report;
  report.happened = true;
  report.error = fault.error;
  report.reason = reason_of(fault.cause);
  report.cause = fault.cause;
  report.time_ns = pool_time();
  report.requested_bytes = request.bytes;
  report.requested_alignment = request.alignment;
  report.is_contiguous = request.allocation_class == AllocationClass::contiguous;
  report.pool = options_.name;
  // One that is not known may be of another pool, and gone.
  if (streams_.is_known(stream)) {
    report.stream_id = stream->id();
    report.stream_handle = internal::StreamTable::handle_of(stream->raw());
  }
  const Tag tag = request.tag == kCurrentTag ? current_tag() : request.tag;
  if (tag.index() < tag_count_) report.tag = options_.tags[tag.index()];

  const internal::CounterTotals totals = caches_.totals();
  StatsV1 bytes;
  fill_counts(bytes, totals);
  fill_bytes(bytes, totals);
  report.held_bytes = bytes.held_bytes;
  report.live_requested_bytes = bytes.live_requested_bytes;
  report.waste_bytes = bytes.waste_bytes;
  report.cached_bytes = bytes.cached_bytes;
  report.pending_bytes = bytes.pending_bytes;
  report.free_bytes = bytes.free_bytes;
  report.fallback_bytes = bytes.fallback_bytes;
  report.largest_free_block_bytes = bytes.largest_free_block_bytes;
  report.largest_satisfiable_bytes = guards_.request_in(largest_satisfiable(exchanges_pages()));
  report.limit_bytes = limit_bytes_.get();
  report.limit_in_force_bytes = bytes.limit_in_force_bytes;
  report.device_free_bytes = counted_.device_free_bytes;
  report.device_total_bytes = counted_.device_total_bytes;
  report.limit_kind = limit_kind(report, options_.capacity);
  if (const double* const fraction = std::get_if<double>(&options_.capacity)) {
    report.capacity_fraction = *fraction;
  }
  report_tags(bytes, options_.tags, report);

  std::vector<std::uint64_t> pending(streams_.index_count());
  const auto add = [&](StreamIndex of, std::uint64_t more) {
    if (of < pending.size()) pending[of] += more;
  };
  for (StreamIndex i = 0; i < pending.size(); ++i) add(i, tiers_.runs().pending_bytes_of(i));
  tiers_.for_each_pending_chunk(add);
  for (const auto& [address, fallback] : fallbacks_.all()) {
    if (fallback.is_pending) add(fallback.tickets.holder(), fallback.bytes);
  }
  report_pending(pending, streams_, report);

  report.last_misses = misses_.last();
  report.rungs = log.reports();
  report.waited_ns = log.waited_ns;
  report.retries = log.retries;
  return report;
}

}  // namespace gpupool
