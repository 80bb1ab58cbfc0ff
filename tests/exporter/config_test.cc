// What a configuration may say, and each way in which it is refused.
#include "gpupool/exporter/config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <variant>
#include <vector>

namespace gpupool {
namespace {

std::string all_text(const std::vector<ConfigError>& errors) {
  std::string result;
  for (const ConfigError& error : errors) result += error.text("f.yaml") + "\n";
  return result;
}

Config parse_ok(const std::string& yaml) {
  auto result = parse_config(yaml);
  if (!result.ok()) ADD_FAILURE() << yaml << "\n" << all_text(result.error());
  return result.ok() ? result.value() : Config{};
}

std::vector<ConfigError> parse_errors(const std::string& yaml) {
  const auto result = parse_config(yaml);
  return result.ok() ? std::vector<ConfigError>{} : result.error();
}

TEST(ConfigTest, DefaultsWhereNothingIsSaid) {
  const Config config = parse_ok("version: 1\n");
  EXPECT_EQ(config.pool.name, "default");
  EXPECT_EQ(std::get<double>(config.pool.capacity), 1.0);
  EXPECT_EQ(config.pool.runtime.recycling, Recycling::eager);
  EXPECT_EQ(config.pool.runtime.trim.idle_after_ns, 0u);
  EXPECT_EQ(config.pool.runtime.trim.idle_bytes_per_second, std::uint64_t{1} << 30);
  EXPECT_EQ(config.pool.runtime.trim.keep_device_free_bytes, 0u);
  EXPECT_EQ(config.pool.runtime.out_of_memory.wait_ns, 10'000'000'000u);
  EXPECT_EQ(config.exporter.bind, "127.0.0.1");
  EXPECT_EQ(config.exporter.port, kDefaultPort);
  EXPECT_EQ(config.exporter.port_count, 16);
  EXPECT_EQ(config.pool.tags.size(), 5u);
}

TEST(ConfigTest, EveryKey) {
  const Config config = parse_ok(R"(# a comment
version: 1
pool:
  name: trainer.rank-0
  capacity: 120GiB
  reserve: 2GiB
  backing: cudamalloc
  recycling: pressure
  slack: 5%
  recycling_wait: 3%
  alias_reuse: same_stream
  trim: {idle_after: 5min, rate: 512MiB, keep_device_free: 2GiB}
  out_of_memory: {wait: 250ms}
  policy: when_done
  on_misuse: abort
  cache_small: 8MiB
  cache_large: 64 MiB
  watched_sizes: [1GiB, 256MiB]
  verify_streams: true
  contiguous: handle
  debug: {poison: true, canary: true, nvtx: true}
alerts:
  fragmentation_ratio: 0.6
  critical_fragmentation_ratio: 0.9
  fallback_ratio: 0.05
  required_block_bytes: 3GiB
tags:
- weights
- kv-cache
)");
  EXPECT_EQ(config.pool.name, "trainer.rank-0");
  EXPECT_EQ(std::get<std::uint64_t>(config.pool.capacity), std::uint64_t{120} << 30);
  EXPECT_EQ(config.pool.reserve_bytes, std::uint64_t{2} << 30);
  EXPECT_EQ(config.pool.backing, Backing::cudamalloc);
  EXPECT_EQ(config.pool.runtime.recycling, Recycling::pressure);
  EXPECT_DOUBLE_EQ(config.pool.runtime.slack, 0.05);
  EXPECT_DOUBLE_EQ(config.pool.runtime.recycling_wait, 0.03);
  EXPECT_EQ(config.pool.runtime.alias_reuse, AliasReuse::same_stream);
  EXPECT_EQ(config.pool.runtime.trim.idle_after_ns, 300'000'000'000u);
  EXPECT_EQ(config.pool.runtime.out_of_memory.wait_ns, 250'000'000u);
  EXPECT_EQ(config.pool.runtime.trim.idle_bytes_per_second, std::uint64_t{512} << 20);
  EXPECT_EQ(config.pool.runtime.trim.keep_device_free_bytes, std::uint64_t{2} << 30);
  EXPECT_EQ(config.pool.runtime.policy, CrossStreamPolicy::when_done);
  EXPECT_EQ(config.pool.on_misuse, OnMisuse::abort);
  EXPECT_EQ(config.pool.cache_small_bytes, std::uint64_t{8} << 20);
  EXPECT_EQ(config.pool.cache_large_bytes, std::uint64_t{64} << 20);
  const std::vector<std::uint64_t> watched = {std::uint64_t{1} << 30, std::uint64_t{256} << 20};
  EXPECT_EQ(config.pool.watched_sizes, watched);
  EXPECT_TRUE(config.pool.verify_streams);
  EXPECT_EQ(config.pool.contiguous, ContiguousBacking::handle);
  EXPECT_FALSE(config.pool.debug.scrub);
  EXPECT_TRUE(config.pool.debug.poison && config.pool.debug.canary && config.pool.debug.nvtx);
  EXPECT_DOUBLE_EQ(config.pool.runtime.thresholds.fragmentation_ratio, 0.6);
  EXPECT_DOUBLE_EQ(config.pool.runtime.thresholds.critical_fragmentation_ratio, 0.9);
  EXPECT_DOUBLE_EQ(config.pool.runtime.thresholds.fallback_ratio, 0.05);
  EXPECT_EQ(config.pool.runtime.thresholds.required_block_bytes, std::uint64_t{3} << 30);
  EXPECT_EQ(config.pool.tags, (std::vector<std::string>{"weights", "kv-cache"}));
}

TEST(ConfigTest, EveryKeyOfTheExporter) {
  const Config config = parse_ok(
      R"(exporter: {enabled: false, bind: "::1", port: 9400, port_count: 4, public_page: true,
           public_details: true, host_names: [node7, node7.cluster.example],
           allow_networks: [10.0.0.0/8, "fd00::/8", 192.0.2.7],
           auth: {user: prometheus, password_file: /run/secrets/gpupool},
           textfile: "/x/{rank}.prom", textfile_every: 30s}
)");
  EXPECT_FALSE(config.exporter.enabled);
  EXPECT_EQ(config.exporter.bind, "::1");
  EXPECT_EQ(config.exporter.port, 9400);
  EXPECT_EQ(config.exporter.port_count, 4);
  EXPECT_TRUE(config.exporter.public_page);
  EXPECT_TRUE(config.exporter.public_details);
  EXPECT_EQ(config.exporter.host_names,
            (std::vector<std::string>{"node7", "node7.cluster.example"}));
  EXPECT_EQ(config.exporter.allow_networks,
            (std::vector<std::string>{"10.0.0.0/8", "fd00::/8", "192.0.2.7"}));
  EXPECT_EQ(config.exporter.textfile, "/x/{rank}.prom");
  EXPECT_EQ(config.exporter.textfile_every_ns, 30'000'000'000u);
  EXPECT_EQ(config.exporter.auth.user, "prometheus");
  EXPECT_EQ(config.exporter.auth.password_file, "/run/secrets/gpupool");
}

TEST(ConfigTest, PeersAreOrdinals) {
  EXPECT_EQ(parse_ok("pool: {peers: [1, 3]}").pool.peers, (std::vector<int>{1, 3}));
  EXPECT_TRUE(parse_ok("pool: {peers: []}").pool.peers.empty());
}

TEST(ConfigTest, CapacityForms) {
  const auto capacity = [](const std::string& text) {
    return parse_ok("pool: {capacity: " + text + "}").pool.capacity;
  };
  EXPECT_DOUBLE_EQ(std::get<double>(capacity("90%")), 0.9);
  EXPECT_DOUBLE_EQ(std::get<double>(capacity("\"90 %\"")), 0.9);
  EXPECT_DOUBLE_EQ(std::get<double>(capacity("0.9")), 0.9);
  EXPECT_DOUBLE_EQ(std::get<double>(capacity("1.0")), 1.0);
  EXPECT_DOUBLE_EQ(std::get<double>(capacity("100%")), 1.0);
  EXPECT_EQ(std::get<std::uint64_t>(capacity("20GB")), 20'000'000'000u);
  EXPECT_EQ(std::get<std::uint64_t>(capacity("8589934592")), std::uint64_t{8} << 30);
  EXPECT_EQ(std::get<std::uint64_t>(capacity("2097152")), kMinCapacityBytes);
}

TEST(ConfigTest, TimesAreReadAsTheyAreWritten) {
  const auto idle_after = [](const std::string& text) {
    return parse_ok("pool: {trim: {idle_after: " + text + "}}").pool.runtime.trim.idle_after_ns;
  };
  EXPECT_EQ(idle_after("0"), 0u);
  EXPECT_EQ(idle_after("0s"), 0u);
  EXPECT_EQ(idle_after("60s"), 60'000'000'000u);
  EXPECT_EQ(idle_after("60 s"), 60'000'000'000u);
  EXPECT_EQ(idle_after("\"250ms\""), 250'000'000u);
  EXPECT_EQ(idle_after("2h"), 7'200'000'000'000u);
  for (const std::uint64_t ns : {0ull, 1ull, 1'500ull, 90'000'000'000ull, 120'000'000'000ull,
                                 7'200'000'000'000ull, 18'446'744'073'709'551'615ull}) {
    Config config;
    config.pool.runtime.trim.idle_after_ns = ns;
    const std::string text = describe(config);
    const std::size_t begin = text.find_first_not_of(' ', text.find("idle_after:") + 11);
    const std::string word = text.substr(begin, text.find_first_of(" \n", begin) - begin);
    EXPECT_EQ(idle_after(word), ns) << word;
  }
}

TEST(ConfigTest, ARateOfNothingIsFineWhereNothingGoesBack) {
  EXPECT_EQ(parse_ok("pool: {trim: {rate: 0}}").pool.runtime.trim.idle_bytes_per_second, 0u);
  EXPECT_EQ(parse_ok("pool: {trim: {rate: 0, idle_after: 0}}").pool.runtime.trim.idle_after_ns, 0u);
}

TEST(ConfigTest, APortThatWasAskedForIsTheOnlyOneTried) {
  EXPECT_EQ(parse_ok("exporter: {port: 9400}").exporter.port_count, 1);
  EXPECT_EQ(parse_ok("exporter: {port: 9400, port_count: 8}").exporter.port_count, 8);
  EXPECT_EQ(parse_ok("exporter: {port_count: 8}").exporter.port, kDefaultPort);
  // Unless the file says that others are.
  EXPECT_EQ(parse_ok("exporter: {port: 9400, on_port_taken: next}").exporter.port_count, 16);
  EXPECT_EQ(parse_ok("exporter: {port: 9400, on_port_taken: any}").exporter.port_count, 1);
}

TEST(ConfigTest, ThePlaceInTheJobIsAsTheEnvironmentSaysUnlessTheFileSaysIt) {
  const ExporterOptions open = parse_ok("version: 1").exporter;
  EXPECT_EQ(open.job.id, "");
  EXPECT_FALSE(open.job.rank || open.job.local_rank || open.job.world_size);
  EXPECT_EQ(open.on_port_taken, OnPortTaken::next);
  const ExporterOptions said =
      parse_ok("exporter: {job: {id: run-7, rank: 12, local_rank: 0, world_size: 16}}").exporter;
  EXPECT_EQ(said.job.id, "run-7");
  EXPECT_EQ(said.job.rank, 12u);
  EXPECT_EQ(said.job.local_rank, 0u);
  EXPECT_EQ(said.job.world_size, 16u);
}

TEST(ConfigTest, DiscoveryIsOffUnlessAFolderIsNamed) {
  EXPECT_EQ(parse_ok("version: 1").exporter.discovery.directory, "");
  const DiscoveryOptions said =
      parse_ok("exporter: {discovery: {directory: \"/run/{uid}/{job_id}\", address: node-1.x}}")
          .exporter.discovery;
  EXPECT_EQ(said.directory, "/run/{uid}/{job_id}");
  EXPECT_EQ(said.address, "node-1.x");
  EXPECT_EQ(parse_ok("exporter: {discovery: {address: \"fd00::7\"}}").exporter.discovery.address,
            "fd00::7");
}

struct Refused {
  const char* yaml;
  int line;
  const char* key_path;
  const char* message;  // part of it
};

std::ostream& operator<<(std::ostream& out, const Refused& refused) { return out << refused.yaml; }

class ConfigRefusalTest : public testing::TestWithParam<Refused> {};

TEST_P(ConfigRefusalTest, IsRefusedWithLineKeyAndWhatIsAllowed) {
  const Refused& refused = GetParam();
  const auto errors = parse_errors(refused.yaml);
  ASSERT_EQ(errors.size(), 1u) << all_text(errors);
  EXPECT_EQ(errors[0].line, refused.line) << errors[0].text("f.yaml");
  EXPECT_EQ(errors[0].key_path, refused.key_path) << errors[0].text("f.yaml");
  EXPECT_NE(errors[0].message.find(refused.message), std::string::npos) << errors[0].text("f.yaml");
}

INSTANTIATE_TEST_SUITE_P(
    Keys, ConfigRefusalTest,
    testing::Values(
        Refused{"version: 1\nplool: {}\n", 2, "plool",
                "unknown key; allowed are version, pool, exporter, alerts, torch, tags"},
        Refused{"alerts:\n  largest_fre_block_alert: 0.5\n", 2, "alerts.largest_fre_block_alert",
                "allowed are fragmentation_ratio, critical_fragmentation_ratio, fallback_ratio, "
                "required_block_bytes"},
        Refused{"pool:\n  slack: 5%\n  name: a\n  slack: 1%\n", 4, "pool.slack",
                "given twice, first on line 2"},
        Refused{"pool: {}\nversion: 1\npool: {}\n", 3, "pool", "given twice"},
        Refused{"pool: {name: a, \"name\": b}", 1, "pool.name", "given twice"},
        Refused{"pool:\n", 1, "pool", "has no value; allowed is a mapping with the keys name"},
        Refused{"pool: [1, 2]", 1, "pool", "is a list; allowed is a mapping"},
        Refused{"pool: text", 1, "pool", "is a single value; allowed is a mapping"},
        Refused{"- version", 1, "", "is a list; allowed is a mapping"},
        Refused{"just text", 1, "", "is a single value; allowed is a mapping"},
        Refused{"[a, b]: 1", 1, "?", "a key must be a word, not a list"},
        Refused{"{a: b}: 1", 1, "?", "a key must be a word, not a mapping"},
        Refused{"~: 1", 1, "?", "a key must be a word, not nothing"},
        Refused{"exporter:\n  tls:\n    cert: /x\n", 3, "exporter.tls",
                "put a proxy or a sidecar in front"}));

INSTANTIATE_TEST_SUITE_P(
    Yaml, ConfigRefusalTest,
    testing::Values(
        Refused{"pool: &p {name: a}", 1, "pool", "anchors (&name) are not allowed"},
        Refused{"version: !!int 1", 1, "version", "tags (!name) are not allowed"},
        Refused{"version: 1\n---\nversion: 1\n", 2, "", "a second document; one is allowed"},
        Refused{"version: 1\n...\nversion: 1\n", 3, "", "a second document; one is allowed"},
        Refused{"pool: {name: a", 1, "", "not valid YAML"},
        Refused{"pool:\n\tname: a\n", 2, "", "not valid YAML"},
        Refused{"pool: *nobody", 1, "", "not valid YAML"},
        Refused{"", 0, "", "empty: expected a mapping with `version: 1`"},
        Refused{"# only a comment\n", 0, "", "empty: expected"},
        Refused{"---\n", 0, "", "empty: expected"}, Refused{"~", 0, "", "empty: expected"},
        Refused{"version: 1\npool: {name: \xff\xfe}\n", 2, "", "not UTF-8"},
        Refused{"version: 1\n\x01\n", 2, "", "not a text file"}));

INSTANTIATE_TEST_SUITE_P(
    Numbers, ConfigRefusalTest,
    testing::Values(
        Refused{"version: 2", 1, "version", "'2' is out of range"},
        Refused{"version: \"1\"", 1, "version", "text in quotes"},
        Refused{"exporter: {port: 09400}", 1, "exporter.port", "leading zero"},
        Refused{"exporter: {port: 011000}", 1, "exporter.port", "leading zero"},
        Refused{"exporter: {port: 010}", 1, "exporter.port", "leading zero"},
        Refused{"exporter: {port: 0o12}", 1, "exporter.port", "octal"},
        Refused{"exporter: {port: 0x2710}", 1, "exporter.port", "hexadecimal"},
        Refused{"exporter: {port: 08}", 1, "exporter.port", "leading zero"},
        Refused{"exporter: {port: -1}", 1, "exporter.port", "negative"},
        Refused{"exporter: {port: +9400}", 1, "exporter.port", "from 0 to 65535"},
        Refused{"exporter: {port: 70000}", 1, "exporter.port", "out of range"},
        Refused{"exporter: {port: 99999999999999999999}", 1, "exporter.port", "out of range"},
        Refused{"exporter: {port: 9_400}", 1, "exporter.port", "no such number"},
        Refused{"exporter: {port: 1e4}", 1, "exporter.port", "no such number"},
        Refused{"exporter: {port: abc}", 1, "exporter.port", "no such number"},
        Refused{"exporter: {port: \"9400\"}", 1, "exporter.port", "without quotes"},
        Refused{"exporter: {port: }", 1, "exporter.port", "has no value"},
        Refused{"exporter: {port: [1]}", 1, "exporter.port", "is a list"},
        Refused{"exporter: {on_port_taken: wait}", 1, "exporter.on_port_taken", "next, any, fail"},
        Refused{"exporter: {discovery: {directory: run}}", 1, "exporter.discovery.directory",
                "absolute path"},
        Refused{"exporter: {discovery: {directory: \"/run/{rank}\"}}", 1,
                "exporter.discovery.directory", "{job_id} and {uid}"},
        Refused{"exporter: {discovery: {directory: \"/run\\n\"}}", 1,
                "exporter.discovery.directory", "absolute path"},
        Refused{"exporter: {discovery: {address: \"a b\"}}", 1, "exporter.discovery.address",
                "name or address"},
        Refused{"exporter: {job: {rank: -1}}", 1, "exporter.job.rank", "negative"},
        Refused{"exporter: {job: {local_rank: 1024}}", 1, "exporter.job.local_rank", "to 1023"},
        Refused{"exporter: {job: {world_size: 0}}", 1, "exporter.job.world_size", "from 1"},
        Refused{"exporter: {job: {id: a/b}}", 1, "exporter.job.id", "64"},
        Refused{"exporter: {port_count: 0}", 1, "exporter.port_count", "from 1 to 1024"},
        Refused{"exporter:\n  port: 65530\n  port_count: 7\n", 3, "exporter.port_count",
                "allowed is up to 6"},
        Refused{"alerts: {fragmentation_ratio: 1.5}", 1, "alerts.fragmentation_ratio",
                "out of range"},
        Refused{"alerts: {fragmentation_ratio: -0.1}", 1, "alerts.fragmentation_ratio", "negative"},
        Refused{"alerts: {fragmentation_ratio: .nan}", 1, "alerts.fragmentation_ratio",
                "from 0 to 1"},
        Refused{"alerts: {fragmentation_ratio: .5}", 1, "alerts.fragmentation_ratio",
                "from 0 to 1"},
        Refused{"alerts: {fragmentation_ratio: 0,5}", 1, "alerts.5", "unknown key"},
        Refused{"alerts:\n  fragmentation_ratio: 0,5\n", 2, "alerts.fragmentation_ratio",
                "from 0 to 1"},
        Refused{"alerts: {fragmentation_ratio: 50%}", 1, "alerts.fragmentation_ratio",
                "from 0 to 1"},
        Refused{"pool: {slack: 5}", 1, "pool.slack", "a percentage from 0% to 100%"},
        Refused{"pool: {slack: 0.05}", 1, "pool.slack", "no percentage"},
        Refused{"pool: {slack: 101%}", 1, "pool.slack", "out of range"},
        Refused{"pool: {slack: 05%}", 1, "pool.slack", "no percentage"},
        Refused{"pool: {slack: -5%}", 1, "pool.slack",
                "'-5%' is out of range; allowed is a percentage from 0% to 100%"},
        Refused{"pool: {slack: 500%}", 1, "pool.slack",
                "'500%' is out of range; allowed is a percentage from 0% to 100%"},
        Refused{"pool: {slack: --5%}", 1, "pool.slack", "no percentage"},
        Refused{"pool: {slack: -%}", 1, "pool.slack", "no percentage"}));

INSTANTIATE_TEST_SUITE_P(
    Sizes, ConfigRefusalTest,
    testing::Values(
        Refused{"pool: {capacity: 0}", 1, "pool.capacity", "'0' is less than one page, 2MiB"},
        Refused{"pool: {capacity: 2097151}", 1, "pool.capacity",
                "'2097151' is less than one page, 2MiB; allowed is a size such as 8GiB"},
        Refused{"pool: {capacity: 1MiB}", 1, "pool.capacity", "'1MiB' is less than one page, 2MiB"},
        Refused{"pool: {capacity: 1}", 1, "pool.capacity", "one byte or as all"},
        Refused{"pool: {capacity: 1.5}", 1, "pool.capacity", "out of range"},
        Refused{"pool: {capacity: 0.0}", 1, "pool.capacity", "out of range"},
        Refused{"pool: {capacity: -0.1}", 1, "pool.capacity", "neither"},
        Refused{"pool: {capacity: .nan}", 1, "pool.capacity", "neither"},
        Refused{"pool: {capacity: .inf}", 1, "pool.capacity", "neither"},
        Refused{"pool: {capacity: 0%}", 1, "pool.capacity", "out of range"},
        Refused{"pool: {capacity: 110%}", 1, "pool.capacity", "out of range"},
        Refused{"pool: {capacity: \"0100MiB\"}", 1, "pool.capacity", "leading zero"},
        Refused{"pool: {capacity: 1.5GiB}", 1, "pool.capacity", "neither"},
        Refused{"pool: {capacity: 17179869184GiB}", 1, "pool.capacity", "64 bits"},
        Refused{"pool: {capacity: 1_000_000}", 1, "pool.capacity", "is not a size"},
        Refused{"pool: {capacity: 0x40000000}", 1, "pool.capacity", "is not a size"},
        Refused{"pool: {capacity: 1e9}", 1, "pool.capacity", "is not a size"},
        Refused{"pool: {capacity: ''}", 1, "pool.capacity", "is not a size"},
        Refused{"pool: {reserve: -1}", 1, "pool.reserve", "negative"},
        Refused{"pool: {reserve: 512m}", 1, "pool.reserve", "unit"},
        Refused{"pool: {reserve: 1Gi}", 1, "pool.reserve", "unit"},
        Refused{"pool: {reserve: 010}", 1, "pool.reserve", "leading zero"},
        Refused{"pool:\n  capacity: 1GiB\n  reserve: 2GiB\n", 3, "pool.reserve",
                "is more than pool.capacity; allowed is up to 1GiB"},
        Refused{"pool: {watched_sizes: 1GiB}", 1, "pool.watched_sizes", "a list of up to 4 sizes"},
        Refused{"pool: {watched_sizes: [1, 2, 3, 4, 5]}", 1, "pool.watched_sizes", "has 5 items"},
        Refused{"pool: {watched_sizes: [1GiB, 1024MiB]}", 1, "pool.watched_sizes[1]", "twice"},
        Refused{"pool: {watched_sizes: [0]}", 1, "pool.watched_sizes[0]", "above 0"},
        Refused{"pool: {watched_sizes: [1GiB, 1XB]}", 1, "pool.watched_sizes[1]", "unit"}));

INSTANTIATE_TEST_SUITE_P(
    Trim, ConfigRefusalTest,
    testing::Values(
        Refused{"pool: {out_of_memory: 10s}", 1, "pool.out_of_memory", "is"},
        Refused{"pool: {out_of_memory: {wait: 10}}", 1, "pool.out_of_memory.wait",
                "without a unit"},
        Refused{"pool: {out_of_memory: {wait: 61min}}", 1, "pool.out_of_memory.wait", "up to 1h"},
        Refused{"pool: {out_of_memory: {retry: 1s}}", 1, "pool.out_of_memory.retry", ""},
        Refused{"pool: {trim: 60s}", 1, "pool.trim",
                "allowed is a mapping with the keys idle_after, rate, keep_device_free"},
        Refused{"pool:\n  trim:\n    after: 60s\n", 3, "pool.trim.after",
                "allowed are idle_after, rate, keep_device_free"},
        Refused{"pool: {trim: {idle_after: 60}}", 1, "pool.trim.idle_after", "without a unit"},
        Refused{"pool: {trim: {idle_after: 60m}}", 1, "pool.trim.idle_after",
                "a time such as 60s, 500ms, 5min or 2h, or 0"},
        Refused{"pool: {trim: {idle_after: 1.5s}}", 1, "pool.trim.idle_after", "no time"},
        Refused{"pool: {trim: {idle_after: s}}", 1, "pool.trim.idle_after", "no time"},
        Refused{"pool: {trim: {idle_after: ''}}", 1, "pool.trim.idle_after", "no time"},
        Refused{"pool: {trim: {idle_after: -1s}}", 1, "pool.trim.idle_after", "negative"},
        Refused{"pool: {trim: {idle_after: 060s}}", 1, "pool.trim.idle_after", "leading zero"},
        Refused{"pool: {trim: {idle_after: 60  s}}", 1, "pool.trim.idle_after", "no time"},
        Refused{"pool: {trim: {idle_after: 6000000h}}", 1, "pool.trim.idle_after", "64 bits"},
        Refused{"pool: {trim: {idle_after: 99999999999999999999s}}", 1, "pool.trim.idle_after",
                "64 bits"},
        Refused{"pool: {trim: {idle_after: [60s]}}", 1, "pool.trim.idle_after", "is a list"},
        Refused{"pool: {trim: {idle_after: }}", 1, "pool.trim.idle_after", "has no value"},
        Refused{"pool: {trim: {rate: 1GiB/s}}", 1, "pool.trim.rate", "unit"},
        Refused{"pool: {trim: {rate: 2000000TiB}}", 1, "pool.trim.rate", "out of range"},
        Refused{"pool: {trim: {keep_device_free: 5%}}", 1, "pool.trim.keep_device_free", "size"},
        Refused{"pool: {trim: {keep_device_free: 2000000TiB}}", 1, "pool.trim.keep_device_free",
                "up to 1048576TiB"},
        Refused{"pool:\n  trim:\n    rate: 0\n    idle_after: 60s\n", 3, "pool.trim.rate",
                "nothing would go back after pool.trim.idle_after"}));

INSTANTIATE_TEST_SUITE_P(
    Words, ConfigRefusalTest,
    testing::Values(
        Refused{"pool: {recycling: on}", 1, "pool.recycling",
                "unknown; allowed is off, pressure, eager"},
        Refused{"pool: {alias_reuse: always}", 1, "pool.alias_reuse",
                "unknown; allowed is wait, same_stream"},
        Refused{"pool: {alias_reuse: true}", 1, "pool.alias_reuse", "'true' is unknown"},
        Refused{"pool: {policy: waits}", 1, "pool.policy", "allowed is never, when_done, wait"},
        Refused{"pool: {policy: When_done}", 1, "pool.policy", "allowed is never"},
        Refused{"pool: {backing: [vmm]}", 1, "pool.backing", "of vmm, cudamalloc"},
        Refused{"pool: {on_misuse: ignore}", 1, "pool.on_misuse", "allowed is report, abort"},
        Refused{"pool: {verify_streams: yes}", 1, "pool.verify_streams", "true or false"},
        Refused{"pool: {verify_streams: \"true\"}", 1, "pool.verify_streams", "without quotes"},
        Refused{"pool: {contiguous: fabric}", 1, "pool.contiguous", "cudamalloc, handle"},
        Refused{"pool: {debug: {canary: 1}}", 1, "pool.debug.canary", "true or false"},
        Refused{"pool: {debug: {scrub: true, poison: true}}", 1, "pool.debug.poison", "scrub"},
        Refused{"pool: {debug: {nvtx: true}}", 1, "pool.debug", "backing: cudamalloc"},
        Refused{"pool: {debug: {scrubs: true}}", 1, "pool.debug.scrubs", "unknown"},
        Refused{"pool: {peers: 1}", 1, "pool.peers", "a list of up to 16 devices"},
        Refused{"pool: {peers: [1, 1]}", 1, "pool.peers[1]", "twice"},
        Refused{"pool: {peers: [-1]}", 1, "pool.peers[0]", "-1"},
        Refused{"pool: {backing: cudamalloc, peers: [1]}", 1, "pool.peers", "backing: vmm"},
        Refused{"pool: {alias_reuse: same_stream, peers: [1]}", 1, "pool.peers", "same_stream"},
        Refused{"pool: {name: a b}", 1, "pool.name", "no valid name"},
        Refused{"pool: {name: \"\"}", 1, "pool.name", "no valid name"},
        Refused{"exporter: {bind: localhost}", 1, "exporter.bind", "an IPv4 or IPv6 address"},
        Refused{"exporter: {bind: 127.0.0.1:9400}", 1, "exporter.bind", "no address"},
        Refused{"exporter: {bind: \"127.0.0.1\\0x\"}", 1, "exporter.bind", "no address"},
        Refused{"exporter: {host_names: node7}", 1, "exporter.host_names", "a list of up to 32"},
        Refused{"exporter: {host_names: [\"node7:80\"]}", 1, "exporter.host_names[0]", "port"},
        Refused{"exporter: {allow_networks: [10.0.0.0/40]}", 1, "exporter.allow_networks[0]",
                "from 0 to 32"},
        Refused{"exporter: {allow_networks: [10.1.0.0/8]}", 1, "exporter.allow_networks[0]",
                "bits set beyond the prefix"},
        Refused{"exporter: {auth: {user: a}}", 1, "exporter.auth", "has no password"},
        Refused{"exporter: {auth: {password: a}}", 1, "exporter.auth", "has no user"},
        Refused{"exporter: {auth: {user: a, password: b, password_env: C}}", 1, "exporter.auth",
                "more than one password"},
        Refused{"exporter: {auth: {user: \"a:b\", password: c}}", 1, "exporter.auth.user",
                "without a colon"},
        Refused{"exporter: {auth: {user: a, password: \"\"}}", 1, "exporter.auth.password",
                "empty"},
        Refused{"exporter: {textfile: [a]}", 1, "exporter.textfile", "is a list"},
        Refused{"exporter: {textfile: job.prom}", 1, "exporter.textfile", "no absolute path"},
        Refused{"exporter: {textfile: /var/lib/job.txt}", 1, "exporter.textfile", "with .prom"},
        Refused{"exporter: {textfile_every: 30}", 1, "exporter.textfile_every", "30"},
        Refused{"exporter: {tls_key: /x.pem}", 1, "exporter.tls_key", "put a proxy or a sidecar"},
        Refused{"exporter: {tls_cert: /x.pem}", 1, "exporter.tls_cert", "put a proxy"},
        Refused{"tags: weights", 1, "tags", "a list of up to 32 names"},
        Refused{"tags: [a, b, a]", 1, "tags[2]", "twice"},
        Refused{"tags: [a, \"b\xc3\xa4\"]", 1, "tags[1]", "no valid name"},
        Refused{"tags: [a, untagged]", 1, "tags[1]", "any other name"},
        Refused{"tags: [a, [b]]", 1, "tags[1]", "is a list"},
        Refused{"tags: {a: b}", 1, "tags", "is a mapping; allowed is a list"}));

TEST(ConfigTest, AllErrorsOfAFileAreReported) {
  const auto errors = parse_errors(R"(version: 3
pool:
  capacity: 0100MiB
  speed: fast
  name: a
  name: b
  slack: &s 5%
exporter:
  port: 0o12
  tls: {}
tags: [ok, "not ok"]
)");
  std::vector<std::string> found;
  found.reserve(errors.size());
  for (const ConfigError& error : errors) {
    found.push_back(std::to_string(error.line) + " " + error.key_path);
  }
  EXPECT_EQ(found, (std::vector<std::string>{"1 version", "3 pool.capacity", "4 pool.speed",
                                             "6 pool.name", "7 pool.slack", "9 exporter.port",
                                             "10 exporter.tls", "11 tags[1]"}));
}

TEST(ConfigTest, ErrorTextHasFileLineAndKey) {
  const ConfigError error{.line = 3, .key_path = "pool.slack", .message = "is wrong"};
  EXPECT_EQ(error.text("a.yaml"), "a.yaml:3: pool.slack: is wrong");
  const ConfigError whole{.line = 0, .key_path = "", .message = "cannot be opened"};
  EXPECT_EQ(whole.text("a.yaml"), "a.yaml: cannot be opened");
}

TEST(ConfigTest, AliasesAndMergeKeysAreRefused) {
  const auto errors =
      parse_errors("pool: &p\n  name: a\nexporter:\n  <<: *p\nalerts: *p\ntags: [*p]\n");
  const std::string text = all_text(errors);
  EXPECT_NE(text.find("f.yaml:1: pool: anchors"), std::string::npos) << text;
  EXPECT_NE(text.find("f.yaml:4: exporter.<<: merge keys are not allowed"), std::string::npos)
      << text;
  EXPECT_NE(text.find("f.yaml:5: alerts: aliases (*name) are not allowed"), std::string::npos)
      << text;
  EXPECT_NE(text.find("f.yaml:6: tags[0]: aliases"), std::string::npos) << text;
}

/// What `describe` says of `key` under `yaml`.
std::string described(const std::string& yaml, const std::string& key) {
  const std::string text = describe(parse_ok(yaml));
  const std::size_t begin = text.find_first_not_of(' ', text.find(key + ":") + key.size() + 1);
  return text.substr(begin, text.find('\n', begin) - begin);
}

TEST(ConfigTest, SaysOfWhatIsSetWhetherItHasAnEffect) {
  const std::string moved = ", slack: 5%, alias_reuse: same_stream}";
  EXPECT_EQ(described("pool: {recycling: eager" + moved, "pool.slack"), "5 %");
  EXPECT_EQ(described("pool: {recycling: eager" + moved, "pool.alias_reuse"), "same_stream");
  EXPECT_EQ(described("pool: {recycling: pressure" + moved, "pool.slack"),
            "5 % (no effect with recycling pressure)");
  EXPECT_EQ(described("pool: {recycling: pressure" + moved, "pool.alias_reuse"), "same_stream");
  EXPECT_EQ(described("pool: {recycling: \"off\"" + moved, "pool.slack"),
            "5 % (no effect with recycling off)");
  EXPECT_EQ(described("pool: {recycling: \"off\"" + moved, "pool.alias_reuse"),
            "same_stream (no effect with recycling off)");
  EXPECT_EQ(described("pool: {backing: cudamalloc" + moved, "pool.slack"), "5 %");
  EXPECT_EQ(described("pool: {backing: cudamalloc" + moved, "pool.alias_reuse"),
            "same_stream (no effect with backing cudamalloc)");
  EXPECT_EQ(described("pool: {trim: {rate: 2MiB}}", "pool.trim.rate"),
            "2MiB (2097152 bytes) a second (no effect without idle_after)");
  EXPECT_EQ(described("pool: {trim: {rate: 2MiB, idle_after: 60s}}", "pool.trim.rate"),
            "2MiB (2097152 bytes) a second");
}

TEST(ConfigTest, NobodyIsAskedWhereTheUserIsLeftOut) {
  EXPECT_EQ(parse_ok("exporter: {auth: {}}").exporter.auth.user, "");
  EXPECT_EQ(described("exporter: {auth: {}, textfile: \"\"}", "exporter.auth"), "none");
}

TEST(ConfigTest, ThePasswordIsNeverShown) {
  EXPECT_EQ(described("exporter: {auth: {user: a, password: s3cret}}", "exporter.auth"),
            "user a, password given");
  EXPECT_EQ(described("exporter: {auth: {user: a, password_env: E}}", "exporter.auth"),
            "user a, password in the environment, E");
  EXPECT_EQ(described("exporter: {allow_networks: [10.0.0.0/8]}", "exporter.allow_networks"),
            "10.0.0.0/8");
  EXPECT_EQ(described("version: 1", "exporter.allow_networks"), "all");
  for (const ConfigError& error : parse_errors("exporter: {auth: {usr: a, password: s3cret}}")) {
    EXPECT_EQ(error.message.find("s3cret"), std::string::npos) << error.message;
  }
}

TEST(ConfigTest, DescribesEverySettingWithItsUnit) {
  const std::string text = describe(parse_ok("pool: {capacity: 90%, reserve: 1GiB}"));
  EXPECT_NE(text.find("pool.capacity:                       90 % of the memory that"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("1GiB (1073741824 bytes)"), std::string::npos) << text;
  EXPECT_NE(text.find("0.5 %\n"), std::string::npos) << text;
  EXPECT_NE(text.find("10064, and the local rank added to it\n"), std::string::npos) << text;
  // Aligned: every value begins at the same column.
  std::vector<std::size_t> columns;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    const std::string line = text.substr(begin, end - begin);
    columns.push_back(line.find_first_not_of(' ', line.find(':') + 1));
    begin = end + 1;
  }
  EXPECT_EQ(columns.size(), 53u);
  EXPECT_NE(text.find("pool.out_of_memory.wait:             10s\n"), std::string::npos) << text;
  EXPECT_NE(text.find("pool.trim.idle_after:                0 (never)\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("1GiB (1073741824 bytes) a second (no effect without"), std::string::npos)
      << text;
  EXPECT_EQ(std::ranges::count(columns, columns.front()), std::ssize(columns)) << text;
}

}  // namespace
}  // namespace gpupool
