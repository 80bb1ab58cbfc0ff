#include "gpupool/tag.h"

#include "base/hot_slot.h"

namespace gpupool {

Tag current_tag() noexcept { return internal::hot_slot.tag; }

Tag exchange_current_tag(Tag tag) noexcept {
  const Tag previous = internal::hot_slot.tag;
  internal::hot_slot.tag = tag;
  return previous;
}

TagScope::TagScope(Tag tag) noexcept : previous_(internal::hot_slot.tag) {
  internal::hot_slot.tag = tag;
}
TagScope::~TagScope() { internal::hot_slot.tag = previous_; }

}  // namespace gpupool
