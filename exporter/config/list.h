// A setting that is a list of single values.
//
// Thread safety: plain functions. Cost: that of its items, and a comparison of each pair.
#ifndef GPUPOOL_EXPORTER_CONFIG_LIST_H_
#define GPUPOOL_EXPORTER_CONFIG_LIST_H_

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exporter/config/error_list.h"
#include "exporter/config/scalars.h"
#include "exporter/config/section.h"
#include "exporter/config/yaml_document.h"

namespace gpupool::internal {

/// Reads each item of a list of at most `limit` by `read_item`; the same value twice is an error.
template <class T, class ReadItem>
void read_list(Section& section, const YamlNode& value, std::size_t limit, std::string_view what,
               std::vector<T>& target, const ReadItem& read_item) {
  const std::string path = section.path_of(value);
  if (value.kind != YamlNode::Kind::sequence) {
    section.refuse(value, std::string(value.kind == YamlNode::Kind::null ? "has" : "is") + " " +
                              kind_text(value.kind) + "; allowed is a list of " +
                              std::string(what));
    return;
  }
  if (value.items.size() > limit) {
    section.refuse(value, "has " + std::to_string(value.items.size()) + " items; allowed are " +
                              std::to_string(limit));
  }
  target.clear();
  for (std::size_t i = 0; i < value.items.size(); ++i) {
    Read<T> item = read_item(value.items[i]);
    std::string problem;
    if (!item.ok()) {
      problem = item.error().text;
    } else if (std::ranges::find(target, item.value()) != target.end()) {
      problem = "stands in the list twice; each is allowed once";
    }
    if (problem.empty()) {
      target.push_back(std::move(item).value());
    } else {
      section.errors().add(value.items[i].line, join_path(path, i), std::move(problem));
    }
    // A long list would cost the square of its length, and each item beyond is refused anyhow.
    if (target.size() > limit) return;
  }
}

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_CONFIG_LIST_H_
