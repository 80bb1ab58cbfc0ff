// Where the pool lets its guards (guards.h) look at a block.
#include <vector>

#include "pool/pool_impl.h"

namespace gpupool {

using internal::GuardedBlock;
using internal::MutexLock;
using internal::MutexUnlock;

namespace {

MisuseReport overrun_of(const GuardedBlock& block, std::uint64_t offset, Tag tag) {
  const auto* const pointer = reinterpret_cast<const void*>(block.address);
  return {.kind = Misuse::canary,
          .pointer = pointer,
          .block = pointer,
          .block_bytes = block.requested_bytes,
          .given = offset,
          .tag = tag};
}

}  // namespace

GuardedBlock Pool::Impl::guarded(const Target& target) {
  if (target.fallback != nullptr) {
    const internal::Fallback& own = *target.fallback;
    return {own.address, own.block.requested(own.bytes), own.allocation + own.bytes - own.address};
  }
  const std::uint64_t bytes = tiers_.bytes_of(target.block);
  return {reinterpret_cast<DeviceAddress>(address_of(target.block)),
          tiers_.record(target.block).requested(bytes), bytes};
}

Result<void> Pool::Impl::guard(BlockRef block, std::uint64_t requested_bytes,
                               internal::BlockWord word, const StreamState& stream) {
  void* const pointer = address_of(block);
  const std::uint64_t bytes = tiers_.bytes_of(block);
  const RawStream raw = stream.raw();
  // As of now: the stream may have ended when the lock is back.
  const TicketSet own = tickets_of(stream.index());
  Result<void> done;
  {
    MutexUnlock unlock(mu_);
    done = guards_.on_hand_out({reinterpret_cast<DeviceAddress>(pointer), requested_bytes, bytes},
                               raw);
  }
  if (done.ok()) return done;
  using Kind = internal::PrivatePools::Kind;
  const Kind kind = block.is_run() ? Kind::run : Kind::in_chunk;
  tiers_.put(block, word.has_extra_uses()
                        ? tickets_at_free(pointer, nullptr, own, internal::Placement(), kind, bytes)
                        : own);
  return done;
}

Result<void> Pool::Impl::guard_own(const internal::Fallback& own, std::uint64_t requested_bytes,
                                   const StreamState& stream) {
  if (!guards_.is_on()) return {};
  const std::uint64_t bytes = own.allocation + own.bytes - own.address;
  const auto done = guards_.on_hand_out({own.address, requested_bytes, bytes}, stream.raw());
  if (done.ok()) return done;
  // What it was filled with, as far as it was, may still be under way, or a part of a graph.
  using Kind = internal::PrivatePools::Kind;
  MutexLock lock(mu_);
  fallbacks_.retire(fallbacks_.add(own), tickets_of(stream.index()));
  if (stream.is_pseudo()) {
    private_pools_.note_taken(stream.index(), Kind::fallback, own.bytes);
    private_pools_.note_freed(stream.index(), Kind::fallback, own.bytes);
  }
  note_held();
  return done;
}

std::optional<MisuseReport> Pool::Impl::guard_free(const Target& target, internal::BlockWord word,
                                                   RawStream raw) {
  const GuardedBlock block = guarded(target);
  std::optional<std::uint64_t> overrun;
  {
    MutexUnlock unlock(mu_);
    overrun = guards_.on_free(block, raw, word.has_extra_uses());
  }
  if (!overrun.has_value()) return std::nullopt;
  return count_misuse(overrun_of(block, *overrun, tag_of(word)));
}

std::uint64_t Pool::check_canaries() {
  Impl& impl = *impl_;
  if (impl.is_closed() || !impl.guards_.has_canaries()) return 0;
  std::vector<const void*> live;
  {
    MutexLock lock(impl.mu_);
    impl.visit_all([&](const BlockInfo& info) {
      if (info.state == BlockState::live) live.push_back(reinterpret_cast<void*>(info.address));
    });
  }
  std::uint64_t overruns = 0;
  for (const void* const pointer : live) {
    std::optional<MisuseReport> misuse;
    GuardedBlock block;
    const auto find = [&](Impl::Target& target) GPUPOOL_REQUIRES(impl.mu_) {
      target = impl.find_target(pointer);
      return target.exists() && target.is_start && impl.record_of(target).load().is_live();
    };
    {
      MutexLock lock(impl.mu_);
      Impl::Target target;
      if (!find(target)) continue;
      block = impl.guarded(target);
    }
    const auto found = impl.guards_.find_overrun(block, nullptr);
    if (!found.has_value()) continue;
    {
      // What was read of a block that is another's by now says nothing.
      MutexLock lock(impl.mu_);
      Impl::Target target;
      if (!find(target) || impl.guarded(target).requested_bytes != block.requested_bytes) continue;
      const auto overrun = impl.guards_.find_untold(block, *found);
      if (!overrun.has_value()) continue;
      impl.guards_.note_told(block, *found);
      const Tag tag = Impl::tag_of(impl.record_of(target).load());
      misuse = impl.count_misuse(overrun_of(block, *overrun, tag));
    }
    ++overruns;
    impl.report_misuse(*misuse);
  }
  return overruns;
}

void Pool::note_wrong_device(const void* pointer, int device) {
  Impl& impl = *impl_;
  if (impl.is_forked()) return;
  MisuseReport report{.kind = Misuse::wrong_device,
                      .pointer = pointer,
                      .given = static_cast<std::uint64_t>(device)};
  {
    MutexLock lock(impl.mu_);
    const auto target = impl.find_target(pointer, true);
    if (target.exists()) {
      const GuardedBlock block = impl.guarded(target);
      report.block = reinterpret_cast<const void*>(block.address);
      report.block_bytes = block.requested_bytes;
    }
    report = impl.count_misuse(report);
  }
  impl.report_misuse(report);
}

}  // namespace gpupool
