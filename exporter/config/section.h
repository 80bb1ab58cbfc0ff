// One mapping of a configuration: gives each key to the function that reads it, and refuses the
// keys that nobody reads.
//
// Thread safety: one thread. Cost: a search through the section's keys for each key.
#ifndef GPUPOOL_EXPORTER_CONFIG_SECTION_H_
#define GPUPOOL_EXPORTER_CONFIG_SECTION_H_

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "exporter/config/error_list.h"
#include "exporter/config/scalars.h"
#include "exporter/config/yaml_document.h"

namespace gpupool::internal {

class Section {
 public:
  /// `node` is what stands at `path`, of whatever kind.
  Section(const YamlNode& node, std::string path, ErrorList& errors)
      : node_(node), path_(std::move(path)), errors_(errors) {}

  using Reader = std::function<void(const YamlNode& value)>;
  struct Key {
    std::string_view name;
    Reader read;
  };
  /// Reads the mapping; anything else than a mapping is an error.
  void read(std::initializer_list<Key> keys);

  /// What stands at `key`, nullptr where nothing does.
  const YamlNode* find(std::string_view key) const;
  std::string path_of(const YamlNode& value) const { return join_path(path_, value.key); }
  void refuse(const YamlNode& value, std::string message) {
    errors_.add(value.line, path_of(value), std::move(message));
  }
  ErrorList& errors() noexcept { return errors_; }

  /// Puts what was read into `target`, or notes the refusal.
  template <class T, class U>
  void assign(const YamlNode& value, Read<T> result, U& target) {
    if (result.ok()) {
      target = static_cast<U>(std::move(result).value());
    } else {
      refuse(value, result.error().text);
    }
  }

 private:
  const YamlNode& node_;
  std::string path_;
  ErrorList& errors_;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_CONFIG_SECTION_H_
