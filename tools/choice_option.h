// An option of a command whose value is one of a few words.
//
// Thread safety: one thread, while the program starts.
#ifndef GPUPOOL_TOOLS_CHOICE_OPTION_H_
#define GPUPOOL_TOOLS_CHOICE_OPTION_H_

#include <CLI/CLI.hpp>
#include <map>
#include <string>

#include "gpupool/options.h"

namespace gpupool::tools {

inline const std::map<std::string, Backing> kBackings = {{"vmm", Backing::vmm},
                                                         {"cudamalloc", Backing::cudamalloc}};

/// Requires: `choices` outlive `app`. `value` keeps its default where the option is not given.
template <class T>
CLI::Option* add_choice(CLI::App& app, const std::string& name,
                        const std::map<std::string, T>& choices, T& value,
                        const std::string& help) {
  std::string words;
  for (const auto& choice : choices) words += (words.empty() ? "" : "|") + choice.first;
  const auto take = [name, &choices, &value, words](const std::string& text) {
    const auto found = choices.find(text);
    if (found == choices.end()) {
      throw CLI::ValidationError(name, "'" + text + "' is none of " + words);
    }
    value = found->second;
  };
  return app.add_option_function<std::string>(name, take, help)->type_name(words);
}

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_CHOICE_OPTION_H_
