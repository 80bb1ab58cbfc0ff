#include "exporter/config/section.h"

#include <algorithm>

namespace gpupool::internal {

void Section::read(std::initializer_list<Key> keys) {
  std::string allowed;
  for (const Key& key : keys) allowed += (allowed.empty() ? "" : ", ") + std::string(key.name);
  if (node_.kind != YamlNode::Kind::mapping) {
    const bool is_empty = node_.kind == YamlNode::Kind::null;
    errors_.add(node_.line, path_,
                (is_empty ? "has no value" : std::string("is ") + kind_text(node_.kind)) +
                    "; allowed is a mapping with the keys " + allowed);
    return;
  }
  for (const YamlNode& value : node_.items) {
    const Key* const key = std::ranges::find(keys, value.key, &Key::name);
    if (key == keys.end()) {
      errors_.add(value.key_line, path_of(value), "unknown key; allowed are " + allowed);
    } else {
      key->read(value);
    }
  }
}

const YamlNode* Section::find(std::string_view key) const {
  const auto value = std::ranges::find(node_.items, key, &YamlNode::key);
  return value == node_.items.end() ? nullptr : &*value;
}

}  // namespace gpupool::internal
