// What memory is for: a small number that travels with each block, so that live bytes can be
// shown by purpose. Names are fixed when a pool starts (PoolOptions::tags, at most 32).
//
//   gpupool::TagScope scope(pool.find_tag("activations").value());
//   ... every allocation of this thread in this scope counts as activations ...
//
// Thread safety: the current tag is per thread and shared by all pools of the process, which are
// meant to be given the same list of names; an index beyond a pool's list counts as untagged.
// Cost: one thread-local byte; a tagged block is counted once more when it is handed out, and once
// more when it is taken back.
#ifndef GPUPOOL_TAG_H_
#define GPUPOOL_TAG_H_

#include <cstddef>
#include <cstdint>

namespace gpupool {

inline constexpr std::size_t kMaxTags = 32;

/// Index of a name in PoolOptions::tags.
class Tag {
 public:
  constexpr Tag() noexcept = default;
  constexpr explicit Tag(std::uint8_t index) noexcept : index_(index) {}
  constexpr std::uint8_t index() const noexcept { return index_; }
  friend constexpr bool operator==(Tag a, Tag b) noexcept { return a.index_ == b.index_; }

 private:
  std::uint8_t index_ = 0xff;
};

/// Counts as no purpose.
inline constexpr Tag kUntagged{0xff};
/// On a request: whatever the thread's innermost TagScope says.
inline constexpr Tag kCurrentTag{0xfe};

/// The calling thread's tag, kUntagged outside every TagScope.
Tag current_tag() noexcept;
/// Sets it until the next call, and gives what it was: for callers whose scopes are no C++ blocks.
Tag exchange_current_tag(Tag tag) noexcept;

/// Sets the calling thread's tag until the end of the scope; scopes nest.
class TagScope {
 public:
  explicit TagScope(Tag tag) noexcept;
  ~TagScope();
  TagScope(const TagScope&) = delete;
  TagScope& operator=(const TagScope&) = delete;

 private:
  Tag previous_;
};

}  // namespace gpupool

#endif  // GPUPOOL_TAG_H_
