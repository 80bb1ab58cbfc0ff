// A YAML file as a plain tree, with what this product refuses already found: aliases, anchors,
// tags, merge keys, duplicate keys, keys that are no words, more than one document, depth over 16,
// and bytes that are no text.
//
// Why not the library's own tree: the packaged yaml-cpp keeps duplicate keys silently, reads 010 as
// 8 and loads an alias to itself. Only its events are used here; nothing of it is seen outside.
// Hostile input: nesting is cut off as soon as depth 16 is passed, so the parser's recursion is
// bounded; the file's size is bounded before it is parsed.
// Thread safety: plain functions. Cost: milliseconds.
#ifndef GPUPOOL_EXPORTER_CONFIG_YAML_DOCUMENT_H_
#define GPUPOOL_EXPORTER_CONFIG_YAML_DOCUMENT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/config/error_list.h"

namespace gpupool::internal {

inline constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMaxYamlDepth = 16;

struct YamlNode {
  enum class Kind : std::uint8_t { null, scalar, sequence, mapping };

  Kind kind = Kind::null;
  int line = 0;                 // from 1
  bool is_quoted = false;       // scalars
  std::string text;             // scalars
  std::string key;              // where the parent is a mapping
  int key_line = 0;             // where the parent is a mapping
  std::vector<YamlNode> items;  // of a sequence or a mapping, in the file's order
};

/// "a list", "a mapping", ... as error texts name what was found.
const char* kind_text(YamlNode::Kind kind) noexcept;

struct YamlDocument {
  YamlNode root;
  /// False where the file could not be read to its end; `root` then holds nothing.
  bool is_complete = false;
};

/// What is refused is added to `errors`.
YamlDocument read_yaml(std::string_view text, ErrorList& errors);

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_CONFIG_YAML_DOCUMENT_H_
