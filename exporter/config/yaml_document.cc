#include "exporter/config/yaml_document.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <exception>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "exporter/base/utf8.h"

namespace gpupool::internal {
namespace {

constexpr std::string_view kEmpty = "empty: expected a mapping with `version: 1`";

int line_of(const YAML::Mark& mark) { return mark.is_null() ? 0 : mark.line + 1; }

struct TooDeep {
  int line;
};

/// Builds the tree from the parser's events and notes what is refused.
class TreeBuilder final : public YAML::EventHandler {
 public:
  explicit TreeBuilder(ErrorList& errors) : errors_(errors) {}

  std::optional<YamlNode> root;

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    YamlNode node;
    node.line = line_of(mark);
    add(std::move(node));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse(mark, "aliases (*name) are not allowed; write the value out");
    YamlNode node;
    node.line = line_of(mark);
    is_alias_ = true;
    add(std::move(node));
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    YamlNode node;
    node.kind = YamlNode::Kind::scalar;
    node.line = line_of(mark);
    node.is_quoted = tag == "!";
    node.text = value;
    add(std::move(node));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::sequence);
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::mapping);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Frame {
    YamlNode node;
    bool has_key = false;      // mappings: the next node is the value of `key`
    bool is_key_valid = true;  // else the value is read and dropped
    std::string key;
    int key_line = 0;
    std::map<std::string, int> first_lines;  // of each key so far
  };

  std::string path() const {
    std::string result;
    for (const Frame& frame : frames_) {
      if (frame.node.kind == YamlNode::Kind::sequence) {
        result = join_path(result, frame.node.items.size());
      } else if (frame.has_key) {
        result = join_path(result, frame.key);
      }
    }
    return result;
  }

  void refuse(const YAML::Mark& mark, std::string message) {
    errors_.add(line_of(mark), path(), std::move(message));
  }

  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != 0) refuse(mark, "anchors (&name) are not allowed; write the value out");
  }

  void refuse_tag(const YAML::Mark& mark, const std::string& tag) {
    // "?" is what the parser says of plain text without a tag, "!" of quoted text.
    if (tag.empty() || tag == "?" || tag == "!") return;
    refuse(mark, "tags (!name) are not allowed; types follow from the key");
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
            YamlNode::Kind kind) {
    // Thrown through the parser, whose recursion ends with it.
    if (frames_.size() >= kMaxYamlDepth) throw TooDeep{line_of(mark)};
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    Frame& frame = frames_.emplace_back();
    frame.node.kind = kind;
    frame.node.line = line_of(mark);
  }

  void close() {
    YamlNode node = std::move(frames_.back().node);
    frames_.pop_back();
    add(std::move(node));
  }

  void add(YamlNode node) {
    const bool is_alias = std::exchange(is_alias_, false);
    if (frames_.empty()) {
      root = std::move(node);
      return;
    }
    Frame& frame = frames_.back();
    if (frame.node.kind == YamlNode::Kind::sequence) {
      // An alias has been refused already; its place is kept so that later items keep their index.
      frame.node.items.push_back(std::move(node));
      return;
    }
    if (!frame.has_key) {
      take_key(frame, node);
      return;
    }
    frame.has_key = false;
    if (!frame.is_key_valid || is_alias) return;
    node.key = std::move(frame.key);
    node.key_line = frame.key_line;
    // The parser notices that a value is missing where the next thing begins, lines later.
    if (node.kind == YamlNode::Kind::null) node.line = frame.key_line;
    frame.node.items.push_back(std::move(node));
  }

  void take_key(Frame& frame, const YamlNode& node) {
    const std::string parent = path();
    frame.has_key = true;
    frame.is_key_valid = false;
    frame.key = node.kind == YamlNode::Kind::scalar ? node.text : "?";
    frame.key_line = node.line;
    const auto refuse_key = [&](std::string message) {
      errors_.add(node.line, join_path(parent, frame.key), std::move(message));
    };
    if (node.kind != YamlNode::Kind::scalar) {
      refuse_key(std::string("a key must be a word, not ") + kind_text(node.kind));
      return;
    }
    if (node.text == "<<") {
      refuse_key("merge keys are not allowed; write the values out");
      return;
    }
    const auto [first, is_new] = frame.first_lines.emplace(frame.key, node.line);
    if (!is_new) {
      refuse_key("given twice, first on line " + std::to_string(first->second) +
                 "; each key is allowed once");
      return;
    }
    frame.is_key_valid = true;
  }

  ErrorList& errors_;
  std::vector<Frame> frames_;
  bool is_alias_ = false;
};

/// Only tells where a second document begins.
class SecondDocument final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override { throw Found{line_of(mark)}; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

  struct Found {
    int line;
  };
};

int line_at(std::string_view text, std::size_t offset) {
  return 1 + static_cast<int>(std::ranges::count(text.substr(0, offset), '\n'));
}

/// What makes `text` no text at all; nothing where it is fine.
std::optional<ConfigError> find_binary(std::string_view text) {
  const std::size_t valid = valid_utf8_prefix(text);
  const std::size_t control = static_cast<std::size_t>(
      std::ranges::find_if(text.substr(0, valid),
                           [](char c) {
                             return (c >= 0 && c < ' ' && c != '\t' && c != '\n' && c != '\r') ||
                                    c == '\x7f';
                           }) -
      text.begin());
  if (control < valid) {
    return ConfigError{line_at(text, control), "",
                       "not a text file: it has control characters; allowed is UTF-8 text"};
  }
  if (valid < text.size()) {
    return ConfigError{line_at(text, valid), "", "not UTF-8; allowed is UTF-8 text"};
  }
  return std::nullopt;
}

void parse(std::string_view text, YamlDocument& document, ErrorList& errors) {
  std::istringstream stream{std::string(text)};
  YAML::Parser parser(stream);
  TreeBuilder builder(errors);
  if (!parser.HandleNextDocument(builder) || !builder.root ||
      builder.root->kind == YamlNode::Kind::null) {
    if (errors.empty()) errors.add(0, "", std::string(kEmpty));
    return;
  }
  try {
    SecondDocument second;
    parser.HandleNextDocument(second);
  } catch (const SecondDocument::Found& found) {
    errors.add(found.line, "", "a second document; one is allowed");
  }
  document.root = std::move(*builder.root);
  document.is_complete = true;
}

}  // namespace

const char* kind_text(YamlNode::Kind kind) noexcept {
  switch (kind) {
    case YamlNode::Kind::null: return "nothing";
    case YamlNode::Kind::scalar: return "a single value";
    case YamlNode::Kind::sequence: return "a list";
    case YamlNode::Kind::mapping: return "a mapping";
  }
  return "something else";
}

YamlDocument read_yaml(std::string_view text, ErrorList& errors) {
  YamlDocument document;
  if (text.size() > kMaxConfigBytes) {
    errors.add(0, "", "larger than 1MiB, the most that is allowed");
    return document;
  }
  if (auto binary = find_binary(text)) {
    errors.add(binary->line, "", std::move(binary->message));
    return document;
  }
  try {
    parse(text, document, errors);
  } catch (const TooDeep& deep) {
    errors.add(deep.line, "",
               "nested deeper than " + std::to_string(kMaxYamlDepth) +
                   " levels, the most that is allowed");
  } catch (const YAML::Exception& error) {
    errors.add(line_of(error.mark), "", "not valid YAML: " + error.msg);
  } catch (const std::exception& error) {
    // Nothing else is expected from the parser; whatever it is, the file was not understood.
    errors.add(0, "", std::string("could not be parsed: ") + error.what());
  }
  return document;
}

}  // namespace gpupool::internal
