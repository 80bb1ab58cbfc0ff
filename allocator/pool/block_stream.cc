// Whose stream a live block is, for callers that free by what the pool knows, not by what they are
// told.
#include "pool/pool_impl.h"

namespace gpupool {

Result<std::optional<RawStream>> Pool::find_stream(const void* pointer) const {
  Impl& impl = *impl_;
  if (impl.is_forked()) return Error::not_supported;
  internal::MutexLock lock(impl.mu_);
  const Impl::Target target = impl.find_target(pointer);
  if (!target.exists() || !target.is_start) return Error::invalid_argument;
  const internal::BlockWord word = impl.record_of(target).load();
  if (!word.is_live()) return Error::invalid_argument;
  return impl.streams_.find_raw(word.stream());
}

}  // namespace gpupool
