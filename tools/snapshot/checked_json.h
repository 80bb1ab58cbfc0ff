// Reading JSON that somebody else has written: what is not as it must be is an error that names the
// place, "arena.held_bytes is no whole number from 0".
//
// Thread safety: plain functions. Cost: a look-up each.
#ifndef GPUPOOL_TOOLS_SNAPSHOT_CHECKED_JSON_H_
#define GPUPOOL_TOOLS_SNAPSHOT_CHECKED_JSON_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace gpupool::tools {

using Json = nlohmann::ordered_json;

/// Thrown and caught within the reader of a file.
struct NotAsExpected : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A value, and where it stands.
class Checked {
 public:
  Checked(const Json& value, std::string place) : value_(value), place_(std::move(place)) {}

  const Json& json() const { return value_; }
  const std::string& place() const { return place_; }

  Checked at(const std::string& key) const {
    if (!value_.is_object()) throw NotAsExpected(named() + " is no object");
    const auto found = value_.find(key);
    const std::string place = place_.empty() ? key : place_ + "." + key;
    if (found == value_.end()) throw NotAsExpected(place + " is missing");
    return {*found, place};
  }
  Checked at(std::size_t index) const {
    return {array()[index], place_ + "[" + std::to_string(index) + "]"};
  }
  bool has(const std::string& key) const { return value_.is_object() && value_.contains(key); }
  const Json& array() const {
    if (!value_.is_array()) throw NotAsExpected(named() + " is no list");
    return value_;
  }
  std::size_t size() const { return array().size(); }
  std::uint64_t whole() const {
    if (value_.is_number_unsigned()) return value_.get<std::uint64_t>();
    // A browser writes large whole numbers with a point or an exponent.
    constexpr double kEnd = 18446744073709551616.0;
    if (value_.is_number_float()) {
      const auto number = value_.get<double>();
      if (number >= 0 && number < kEnd) return static_cast<std::uint64_t>(number);
    }
    throw NotAsExpected(named() + " is no whole number from 0");
  }
  double number() const {
    if (!value_.is_number()) throw NotAsExpected(named() + " is no number");
    return value_.get<double>();
  }
  std::string text() const {
    if (!value_.is_string()) throw NotAsExpected(named() + " is no text");
    return value_.get<std::string>();
  }

 private:
  std::string named() const { return place_.empty() ? "the whole" : place_; }

  const Json& value_;
  std::string place_;
};

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_SNAPSHOT_CHECKED_JSON_H_
