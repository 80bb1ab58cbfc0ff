// Configuration files that other systems read wrongly (cases F2, F4 and F6): leading zeros, keys
// that are not there, sizes as text.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <string_view>

#include "exporter/config/error_list.h"
#include "exporter/config/yaml_document.h"
#include "gpupool/exporter/config.h"

namespace gpupool {
namespace {

/// The only error of a file: "key: message"; "" where there is none.
std::string error_of(const std::string& yaml) {
  const auto config = parse_config(yaml);
  if (config.ok()) return {};
  EXPECT_EQ(config.error().size(), 1u) << yaml;
  return config.error().front().key_path + ": " + config.error().front().message;
}

TEST(CaseF2, NumbersAreDecimalOrRefusedByName) {
  const std::map<std::string, std::string> refused = {
      {"exporter: {port: 09400}", "exporter.port"},
      {"exporter: {port: 011000}", "exporter.port"},
      {"exporter: {port: 0o12}", "exporter.port"},
      {"exporter: {port_count: 08}", "exporter.port_count"},
      {"exporter: {port_count: 0x10}", "exporter.port_count"},
      {"exporter: {port: \"0123\"}", "exporter.port"},
      {"exporter: {job: {rank: 007}}", "exporter.job.rank"},
      {"pool: {capacity: \"0100MiB\"}", "pool.capacity"},
      {"pool: {capacity: 0010}", "pool.capacity"},
      {"pool: {slack: 05%}", "pool.slack"},
      {"pool: {trim: {idle_after: 010s}}", "pool.trim.idle_after"},
      {"alerts: {fragmentation_ratio: 00.5}", "alerts.fragmentation_ratio"}};
  for (const auto& [yaml, key] : refused) {
    const std::string error = error_of(yaml);
    EXPECT_TRUE(error.starts_with(key + ": ")) << yaml << ": " << error;
    EXPECT_NE(error.find("allowed"), std::string::npos) << error;
  }
  EXPECT_EQ(parse_config("exporter: {port: 9400}").value().exporter.port, 9400);
}

/// The tree as flow-style YAML.
std::string dump(const internal::YamlNode& node) {
  using Kind = internal::YamlNode::Kind;
  if (node.kind == Kind::null) return "";
  if (node.kind == Kind::scalar) return node.text;
  const bool is_mapping = node.kind == Kind::mapping;
  std::string text = is_mapping ? "{" : "[";
  for (const internal::YamlNode& item : node.items) {
    if (text.size() > 1) text += ", ";
    if (is_mapping) text += item.key + ": ";
    text += dump(item);
  }
  return text + (is_mapping ? "}" : "]");
}

TEST(CaseF4, ReadingChangesNothingAndWhatIsNotKnownIsReported) {
  EXPECT_TRUE(error_of("pool:\n").starts_with("pool: has no value; allowed is a mapping"));
  EXPECT_TRUE(error_of("pool: [1, 2]\n").starts_with("pool: is a list; allowed is a mapping"));
  EXPECT_TRUE(error_of("pool: text\n").starts_with("pool: is "));
  EXPECT_TRUE(error_of("alerts: {largest_fre_block_alert: 0.5}\n")
                  .starts_with("alerts.largest_fre_block_alert: unknown key; allowed are "));
  for (const std::string yaml :
       {"{pool: , tags: [a, b]}", "{pool: [1, 2]}", "{pool: text}", "{pool: {}, alerts: {a: []}}",
        "{alerts: {largest_fre_block_alert: 0.5}, pool: {capacity: 8GiB, trim: {rate: 0}}}"}) {
    internal::ErrorList errors;
    const internal::YamlDocument document = internal::read_yaml(yaml, errors);
    EXPECT_EQ(dump(document.root), yaml);
    static_cast<void>(parse_config(yaml));
    static_cast<void>(parse_config(yaml));
    EXPECT_EQ(dump(internal::read_yaml(yaml, errors).root), yaml);
  }
}

std::uint64_t reserve_of(const std::string& size) {
  const auto config = parse_config("pool: {reserve: " + size + "}");
  EXPECT_TRUE(config.ok()) << size;
  return config.ok() ? config.value().pool.reserve_bytes : 0;
}

TEST(CaseF6, SizesAreReadAsTheyArePrintedAndAllElseIsRefused) {
  EXPECT_EQ(reserve_of("1GiB"), std::uint64_t{1} << 30);
  EXPECT_EQ(reserve_of("1 GiB"), std::uint64_t{1} << 30);
  EXPECT_EQ(reserve_of("1GB"), 1'000'000'000u);
  EXPECT_EQ(reserve_of("20GB"), 20'000'000'000u);
  EXPECT_EQ(reserve_of("10 KiB"), 10'240u);
  EXPECT_EQ(reserve_of("5 KiB"), 5'120u);
  EXPECT_EQ(reserve_of("32GiB"), std::uint64_t{32} << 30);
  for (const char* size :
       {"1gib", "1G", "1g", "512m", "1.5GiB", "16EiB", "1e9", "0x40000000", "1_000", "\"\"",
        "\" \"", "GiB", "1GiBs", "1 Gi B", "16777216TiB", "18446744073709551616"}) {
    const std::string error = error_of("pool: {reserve: " + std::string(size) + "}");
    EXPECT_TRUE(error.starts_with("pool.reserve: ")) << size << ": " << error;
    EXPECT_NE(error.find("allowed"), std::string::npos) << size << ": " << error;
  }
}

TEST(CaseF6, TenThousandRandomSizesComeBack) {
  std::mt19937_64 random(6);
  for (int i = 0; i < 10'000; ++i) {
    const std::uint64_t bytes = random() >> (random() % 64);
    const std::uint64_t rounded = bytes >> (random() % 41) << (random() % 20);
    for (const std::uint64_t size : {bytes, rounded}) {
      ASSERT_EQ(reserve_of(format_size(size)), size) << format_size(size);
    }
  }
}

}  // namespace
}  // namespace gpupool
