// What a pool may and must do, written down without looking at how it does it.
//
//   blocks    live ranges do not overlap, are aligned, and are as many and as large as the pool
//             says; so are requests, failures, frees, bytes by tag, misuses
//   streams   every piece of work that the program gave, with its bytes, and who was made to wait
//             for whom. Memory may be given to a stream only if each unfinished piece of work that
//             uses it is that stream's own or one that it waits for.
//
// The second knows nothing of epochs and tickets: work is finished when the device has run it,
// and that the device says by setting the work's flag.
//
// Thread safety: none. Cost: O(unfinished work + log blocks) an allocation.
#ifndef GPUPOOL_TESTS_SUPPORT_MODEL_H_
#define GPUPOOL_TESTS_SUPPORT_MODEL_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpupool/stats.h"

namespace gpupool::test {

/// A stream by a number that is never given again, unlike its handle.
using StreamKey = std::uint64_t;

class Model {
 public:
  /// Set by the device when the work is finished.
  using DoneFlag = std::shared_ptr<bool>;

  // Streams and their work.
  DoneFlag give_work(StreamKey stream, std::uint64_t address, std::uint64_t bytes);
  /// What `later` is given from now on runs after all that `earlier` was given by now.
  void order(StreamKey later, StreamKey earlier);
  /// Work that may still touch the bytes and that `stream` is not ordered after, in words.
  std::optional<std::string> find_danger(StreamKey stream, std::uint64_t address,
                                         std::uint64_t bytes);

  /// The pool makes streams wait for each other, too: then the device alone judges who may have
  /// what.
  void leave_order_to_device() { knows_order_ = false; }
  /// Calls `visit(address, bytes)` for each piece of work that is unfinished.
  template <class Visit>
  void for_each_unfinished(Visit visit) const {
    for (const Work& work : unfinished_) {
      if (!*work.is_done) visit(work.begin, work.end - work.begin);
    }
  }

  // Blocks. Each gives what is wrong with it, in words.
  std::optional<std::string> add_block(std::uint64_t address, std::uint64_t bytes,
                                       std::uint64_t alignment, StreamKey stream, std::uint8_t tag);
  void remove_block(std::uint64_t address);
  /// The live block that covers `address`: its start; nothing if there is none.
  std::optional<std::uint64_t> find_block(std::uint64_t address) const;
  /// Start -> requested bytes.
  struct Block {
    std::uint64_t bytes = 0;
    std::uint8_t tag = 0xff;
  };
  const std::map<std::uint64_t, Block>& blocks() const { return blocks_; }

  void count_failure() { ++requests_, ++failures_; }
  void count_misuse(Misuse kind) { ++misuses_[static_cast<std::size_t>(kind)]; }
  /// The first number of `stats` that is not as it must be, in words.
  std::optional<std::string> compare(const StatsV1& stats) const;

 private:
  struct Work {
    StreamKey stream = 0;
    std::uint64_t position = 0;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    DoneFlag is_done;
  };
  using Positions = std::map<StreamKey, std::uint64_t>;

  std::map<std::uint64_t, Block> blocks_;
  std::vector<Work> unfinished_;
  Positions given_;
  std::map<StreamKey, Positions> seen_;  // of each stream, how far of others it waits for

  bool knows_order_ = true;
  std::uint64_t requests_ = 0;
  std::uint64_t failures_ = 0;
  std::uint64_t frees_ = 0;
  std::uint64_t live_bytes_ = 0;
  std::uint64_t peak_bytes_ = 0;
  std::uint64_t requested_total_ = 0;
  std::array<std::uint64_t, kMaxTags> tag_bytes_{};
  std::array<std::uint64_t, kMisuseCount> misuses_{};
};

}  // namespace gpupool::test

#endif  // GPUPOOL_TESTS_SUPPORT_MODEL_H_
