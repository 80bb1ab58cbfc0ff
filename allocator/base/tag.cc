#include "gpupool/tag.h"

namespace gpupool {
namespace {

constinit thread_local Tag thread_tag = kUntagged;

}  // namespace

Tag current_tag() noexcept { return thread_tag; }

TagScope::TagScope(Tag tag) noexcept : previous_(thread_tag) { thread_tag = tag; }
TagScope::~TagScope() { thread_tag = previous_; }

}  // namespace gpupool
