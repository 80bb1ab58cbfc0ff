// A few streams to do something for soon; what there is no room for is left for another time.
#ifndef GPUPOOL_POOL_FEW_STREAMS_H_
#define GPUPOOL_POOL_FEW_STREAMS_H_

#include <array>
#include <cstddef>

#include "stream/ticket.h"

namespace gpupool::internal {

class FewStreams {
 public:
  FewStreams() noexcept {}  // not defaulted: that would fill the array with zeros
  bool empty() const noexcept { return count_ == 0; }
  void clear() noexcept { count_ = 0; }
  void add(StreamIndex stream) noexcept {
    if (count_ < streams_.size()) streams_[count_++] = stream;
  }
  const StreamIndex* begin() const noexcept { return streams_.data(); }
  const StreamIndex* end() const noexcept { return streams_.data() + count_; }

 private:
  std::array<StreamIndex, 6> streams_;
  std::size_t count_ = 0;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_POOL_FEW_STREAMS_H_
