// Streams that ended without a word to the pool: what was live on them, and frees that still name
// them.
//
// Work that such a stream was given goes on, and no event can tell when it is over. So what was
// live on it waits for it, whichever stream it is freed on: also on one whose handle is the same,
// which is all that a program like PyTorch can name. It is complete once the whole device is
// (finish_releases), for which a request waits before it is refused.
#include <vector>

#include "pool/pool_impl.h"

namespace gpupool {

using internal::BlockWord;
using internal::MutexLock;

// A block has its stream's number, which a released stream may have had before: what was live on
// that one waits as well, and is none the worse for it.
void Pool::Impl::hold_blocks_of(const StreamState& stream) {
  std::vector<const void*> blocks;
  visit_all([&](const BlockInfo& info) {
    const bool is_its = info.state == BlockState::live && info.stream_id == stream.id();
    if (is_its) blocks.push_back(reinterpret_cast<const void*>(info.address));
  });
  for (const void* const pointer : blocks) {
    internal::BlockRecord& record = record_of(find_target(pointer));
    for (BlockWord word = record.load(); word.is_live(); word = record.load()) {
      if (!record.take(word, word.with_extra_uses())) continue;
      extra_uses_[pointer].push_back({streams_.ticket(stream.index()), false});
      break;
    }
  }
}

internal::StreamState* Pool::Impl::find_own_stream(const void* pointer, RawStream raw) {
  MutexLock lock(mu_);
  const Target target = find_target(pointer);
  if (!target.exists() || !target.is_start) return nullptr;
  const BlockWord word = record_of(target).load();
  if (!word.is_live()) return nullptr;
  StreamState* const own = streams_.find(streams_.id_of(word.stream()));
  return own != nullptr && own->raw() == raw ? own : nullptr;
}

}  // namespace gpupool
