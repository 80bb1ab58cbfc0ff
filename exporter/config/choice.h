// A setting that is one of a few words: those of an enum, as its to_string() gives them.
//
// Thread safety: plain functions. Cost: a string of what is allowed.
#ifndef GPUPOOL_EXPORTER_CONFIG_CHOICE_H_
#define GPUPOOL_EXPORTER_CONFIG_CHOICE_H_

#include <initializer_list>
#include <string>

#include "exporter/config/scalars.h"
#include "exporter/config/yaml_document.h"

namespace gpupool::internal {

template <class Enum>
struct Choice {
  Enum value;
  bool is_available = true;
};

template <class Enum>
Read<Enum> read_choice(const YamlNode& node, std::initializer_list<Choice<Enum>> choices) {
  std::string allowed;
  for (const Choice<Enum>& choice : choices) {
    if (choice.is_available)
      allowed += (allowed.empty() ? "" : ", ") + std::string(to_string(choice.value));
  }
  const auto text = read_text(node);
  if (!text.ok()) return Refusal{text.error().text + " of " + allowed};
  for (const Choice<Enum>& choice : choices) {
    if (text.value() != to_string(choice.value)) continue;
    if (choice.is_available) return choice.value;
    return refusal(text.value(), "not available yet", allowed);
  }
  return refusal(text.value(), "unknown", allowed);
}

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_CONFIG_CHOICE_H_
