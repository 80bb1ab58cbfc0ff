// How a request names the stream whose order it follows.
//
// Two ways in:
//   StreamRef    made once for a stream by Pool::adopt_stream: the fast path, nothing is asked of
//                the driver, and what the calling thread's cache serves takes no lock. Whoever made
//                it announces the stream's end by Pool::release_stream.
//   RawStream    the driver's own handle (cudaStream_t, CUstream): safe and slower, because the
//                handle of a destroyed stream is used again by the driver, so that its identity
//                is asked at each call. Announce the stream's end all the same (adopt_stream, then
//                release_stream): what it freed last stays pending for ever otherwise.
//
// A thread's own default stream is released when the thread ends.
//
// A handle of nullptr is the legacy default stream, or the calling thread's own default stream
// where the including file is compiled with CUDA_API_PER_THREAD_DEFAULT_STREAM. The legacy stream's
// other handle, cudaStreamLegacy, is the same stream; what names streams names it by nullptr.
//
// Thread safety: plain values; a StreamRef may be used from several threads, each of which then has
// a cache of its own for the stream. What one frees, another may get: it is the stream's order that
// makes that safe.
#ifndef GPUPOOL_STREAM_H_
#define GPUPOOL_STREAM_H_

#include <cstdint>

struct CUstream_st;  // the driver's own name, so that no CUDA header is needed here

namespace gpupool {

using RawStream = CUstream_st*;

/// The value by which CUDA names the calling thread's own default stream (cudaStreamPerThread).
inline RawStream per_thread_stream() noexcept {
  return reinterpret_cast<RawStream>(std::uintptr_t{2});
}

/// `stream` by the one handle that pools know it by: the legacy default stream has two, nullptr and
/// cudaStreamLegacy.
inline RawStream one_handle(RawStream stream) noexcept {
  return reinterpret_cast<std::uintptr_t>(stream) == 1 ? nullptr : stream;
}

/// `stream`, with nullptr mapped as the including file was compiled.
inline RawStream resolve_default_stream(RawStream stream) noexcept {
#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
  return stream == nullptr ? per_thread_stream() : stream;
#else
  return stream;
#endif
}

namespace internal {
class StreamState;
}

/// A stream made known to one pool. Valid until Pool::release_stream or the pool's end.
class StreamRef {
 public:
  StreamRef() noexcept = default;
  bool is_valid() const noexcept { return state_ != nullptr; }
  friend bool operator==(StreamRef a, StreamRef b) noexcept { return a.state_ == b.state_; }

  /// For the pool's own use.
  explicit StreamRef(internal::StreamState* state) noexcept : state_(state) {}
  internal::StreamState* state() const noexcept { return state_; }

 private:
  internal::StreamState* state_ = nullptr;
};

}  // namespace gpupool

#endif  // GPUPOOL_STREAM_H_
