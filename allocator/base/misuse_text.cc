#include "gpupool/misuse_text.h"

#include <array>
#include <cstdint>
#include <cstdio>

namespace gpupool {
namespace {

std::string address_text(const void* address) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "0x%llx",
                static_cast<unsigned long long>(reinterpret_cast<std::uintptr_t>(address)));
  return text.data();
}

std::string given_text(const MisuseReport& report) {
  const std::string given = std::to_string(report.given);
  switch (report.kind) {
    case Misuse::wrong_size: return ", given as " + given + " bytes";
    case Misuse::wrong_device: return ", given with device " + given;
    case Misuse::canary: return ", written to from byte " + given + " on";
    case Misuse::double_free:
    case Misuse::foreign_pointer:
    case Misuse::interior_pointer:
    case Misuse::unknown_stream:
    case Misuse::leak: break;
  }
  return {};
}

std::string tag_text(Tag tag, std::span<const std::string> tags) {
  if (tag == kUntagged) return {};
  return ", tag " + (tag.index() < tags.size() ? tags[tag.index()] : std::to_string(tag.index()));
}

}  // namespace

std::string misuse_text(const MisuseReport& report, std::span<const std::string> tags) {
  std::string text = to_string(report.kind);
  if (report.kind == Misuse::leak) {
    return text + " of " + std::to_string(report.given) + " blocks, " +
           std::to_string(report.block_bytes) + " bytes";
  }
  text += " of " + address_text(report.pointer);
  if (report.block != nullptr) {
    text += report.block == report.pointer
                ? ", a block of "
                : ", of the block " + address_text(report.block) + " of ";
    text += std::to_string(report.block_bytes) + " bytes";
  }
  return text + given_text(report) + tag_text(report.tag, tags);
}

}  // namespace gpupool
