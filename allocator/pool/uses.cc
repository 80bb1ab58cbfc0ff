// Uses of a block by other streams than its own: what its free has to wait for as well.
//
// Note [Uses that cannot be told]
// Whoever says that a stream uses a block knows that its own stream's order is not enough. Where
// the pool cannot tell which stream that is, it may be any, and no event of one that it knows
// covers the work: but a device that is done with everything does. So the use is booked on a stream
// without a name, whose epochs are complete only by that (finish_releases). Were it only refused,
// the block would be reused while it is in use.
#include <algorithm>

#include "pool/pool_impl.h"

namespace gpupool {

using internal::BlockWord;
using internal::MutexLock;

bool Pool::Impl::record_use(void* pointer, internal::StreamState* stream,
                            std::optional<CaptureState> capture, bool at_free) {
  std::optional<MisuseReport> misuse;
  const internal::Placement placement = place(stream, capture, {});
  StreamIndex index = internal::kAnybody;
  bool is_told = false;
  {
    MutexLock lock(mu_);
    is_told = placement.is_same_stream && streams_.is_known(stream);
    const Target target = find_target(pointer);
    bool is_live = target.exists() && target.is_start;
    if (is_live) {
      internal::BlockRecord& record = record_of(target);
      const BlockWord word = record.load();
      is_live = word.is_live() && record.take(word, word.with_extra_uses());
    }
    if (!is_told) {
      misuse = count_misuse({.kind = Misuse::unknown_stream, .pointer = pointer});
    } else if (!is_live) {
      misuse = count_misuse(explain(pointer));
    }
    if (is_live) {
      auto& uses = extra_uses_[pointer];
      // nullptr, too, where a capture would need an index and there is none.
      const auto* const by = is_told ? using_stream(placement, stream, uses) : nullptr;
      is_told = by != nullptr;
      index = is_told ? by->index() : know(streams_.nameless());
      ExtraUse use{{index, 0}, at_free};
      if (!at_free) use.ticket = streams_.ticket(index);
      // One entry a stream and kind: the later use covers the earlier.
      const auto known = std::find_if(uses.begin(), uses.end(), [&](const ExtraUse& other) {
        return other.at_free == at_free && other.ticket.stream == index && !other.is_home;
      });
      if (known == uses.end()) {
        uses.push_back(use);
      } else {
        *known = use;
      }
    }
  }
  if (misuse.has_value()) report_misuse(*misuse);
  if (misuse.has_value() || !is_told) return false;
  if (at_free || index != stream->index()) return true;
  // The event comes after all that the stream was given by now; what else it may come after only
  // makes the block wait longer.
  MutexLock events(events_mu_);
  close_epoch(index);
  return true;
}

}  // namespace gpupool
