// Who a process is in its job, by configuration and environment, and which ports follow from it.
#include "exporter/metrics/identity.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "exporter/discovery/port_plan.h"

namespace gpupool::internal {
namespace {

using Environment = std::map<std::string, std::string>;

struct Found {
  JobIdentity job;
  std::vector<std::string> notes;
};

Found find(const Environment& environment, const JobOptions& given = {}) {
  Found found;
  const auto lookup = [&environment](const char* name) -> const char* {
    const auto variable = environment.find(name);
    return variable == environment.end() ? nullptr : variable->second.c_str();
  };
  found.job = read_identity(given, lookup, found.notes);
  return found;
}

TEST(IdentityTest, TorchrunsVariables) {
  const Found found = find({{"RANK", "13"},
                            {"LOCAL_RANK", "5"},
                            {"WORLD_SIZE", "64"},
                            {"GROUP_RANK", "1"},
                            {"TORCHELASTIC_RUN_ID", "pretrain"}});
  EXPECT_EQ(found.job.rank, 13u);
  EXPECT_EQ(found.job.local_rank, 5u);
  EXPECT_EQ(found.job.world_size, 64u);
  EXPECT_EQ(found.job.group_rank, 1u);
  EXPECT_EQ(found.job.job_id, "pretrain");
  EXPECT_TRUE(found.notes.empty());
}

TEST(IdentityTest, SlurmsVariables) {
  const Found found = find({{"SLURM_PROCID", "9"},
                            {"SLURM_LOCALID", "1"},
                            {"SLURM_NTASKS", "16"},
                            {"SLURM_NODEID", "1"},
                            {"SLURM_JOB_ID", "4711"}});
  EXPECT_EQ(found.job.rank, 9u);
  EXPECT_EQ(found.job.local_rank, 1u);
  EXPECT_EQ(found.job.world_size, 16u);
  EXPECT_EQ(found.job.group_rank, 1u);
  EXPECT_EQ(found.job.job_id, "4711");
}

TEST(IdentityTest, UnderSlurmTorchrunKnowsTheRankAndSlurmTheJob) {
  const Found found = find({{"RANK", "13"},
                            {"LOCAL_RANK", "5"},
                            {"TORCHELASTIC_RUN_ID", "none"},
                            {"SLURM_PROCID", "1"},
                            {"SLURM_LOCALID", "0"},
                            {"SLURM_JOB_ID", "4711"}});
  EXPECT_EQ(found.job.rank, 13u);
  EXPECT_EQ(found.job.local_rank, 5u);
  EXPECT_EQ(found.job.job_id, "4711");
}

TEST(IdentityTest, TheNameOfAnUnnamedRunIsNone) {
  EXPECT_EQ(find({{"TORCHELASTIC_RUN_ID", "none"}}).job.job_id, "");
}

TEST(IdentityTest, NothingWhereNothingIsSaid) {
  for (const Environment& environment : {Environment{}, Environment{{"RANK", ""}}}) {
    const Found found = find(environment);
    EXPECT_FALSE(found.job.rank || found.job.local_rank || found.job.world_size);
    EXPECT_EQ(found.job.job_id, "");
    EXPECT_TRUE(found.notes.empty());
  }
}

TEST(IdentityTest, WhatIsNoNumberIsLeftOutAndSaid) {
  for (const char* value : {"-1", "x", "1.5", "0x10", "007", " 1", "1 ", "+1", "1e3", "4294967296",
                            "99999999999999999999999999", "2147483648"}) {
    for (const char* name : {"RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_PROCID"}) {
      const Found found = find({{name, value}});
      EXPECT_FALSE(found.job.rank || found.job.local_rank || found.job.world_size) << value;
      ASSERT_EQ(found.notes.size(), 1u) << name << "=" << value;
      EXPECT_NE(found.notes[0].find(name), std::string::npos) << found.notes[0];
      EXPECT_NE(found.notes[0].find(value), std::string::npos) << found.notes[0];
    }
  }
  EXPECT_EQ(find({{"WORLD_SIZE", "0"}}).notes.size(), 1u);
  EXPECT_EQ(find({{"LOCAL_RANK", "1024"}}).notes.size(), 1u);
  EXPECT_EQ(find({{"LOCAL_RANK", "1023"}}).job.local_rank, 1023u);
}

TEST(IdentityTest, TheNextSourceIsAskedWhereOneMakesNoSense) {
  const Found found = find({{"RANK", "many"}, {"SLURM_PROCID", "3"}});
  EXPECT_EQ(found.job.rank, 3u);
  EXPECT_EQ(found.notes.size(), 1u);
}

TEST(IdentityTest, WhatIsShownOfAValueIsOneShortLine) {
  const Found found = find({{"RANK", std::string(100'000, 'x')},
                            {"LOCAL_RANK", "1\n2\xff"},
                            {"SLURM_JOB_ID", "a\nb\xff" + std::string(1'000, 'y')}});
  ASSERT_EQ(found.notes.size(), 2u);
  for (const std::string& note : found.notes) {
    EXPECT_LT(note.size(), 300u);
    EXPECT_EQ(note.find('\n'), std::string::npos);
  }
  EXPECT_LE(found.job.job_id.size(), 140u);
  EXPECT_EQ(found.job.job_id.substr(0, 3), "a?b");
}

TEST(IdentityTest, TheConfigurationGoesBeforeTheEnvironment) {
  const Environment environment = {{"RANK", "bad"},       {"LOCAL_RANK", "1"},
                                   {"WORLD_SIZE", "2"},   {"SLURM_JOB_ID", "4711"},
                                   {"SLURM_PROCID", "7"}, {"SLURM_LOCALID", "7"}};
  const Found found =
      find(environment, {.id = "mine", .rank = 30, .local_rank = 2, .world_size = 32});
  EXPECT_EQ(found.job.job_id, "mine");
  EXPECT_EQ(found.job.rank, 30u);
  EXPECT_EQ(found.job.local_rank, 2u);
  EXPECT_EQ(found.job.world_size, 32u);
  EXPECT_TRUE(found.notes.empty());
  EXPECT_EQ(find(environment, {.rank = 0}).job.rank, 0u);
}

ListenOptions planned(const ExporterOptions& options, std::optional<std::uint32_t> local_rank) {
  const auto plan = plan_ports(options, local_rank);
  EXPECT_TRUE(plan.ok());
  return plan.ok() ? plan.value().listen : ListenOptions{};
}

TEST(PortPlanTest, TheLocalRanksPortComesFirstAndTheRestOfTheRangeAfterIt) {
  const ListenOptions third = planned({}, 3);
  EXPECT_EQ(third.port, kDefaultPort);
  EXPECT_EQ(third.first, 3);
  EXPECT_EQ(third.port_count, 16);
  EXPECT_EQ(planned({}, std::nullopt).first, 0);
  // There is no such port in the range: whichever is free.
  EXPECT_EQ(planned({}, 16).first, 0);
}

TEST(PortPlanTest, APortThatWasAskedForIsTheFirstOfOneForEachLocalRank) {
  const ListenOptions third = planned({.port = 9400, .port_count = 1}, 3);
  EXPECT_EQ(third.port, 9403);
  EXPECT_EQ(third.port_count, 1);
  EXPECT_EQ(planned({.port = 9400, .on_port_taken = OnPortTaken::fail}, 3).port_count, 1);
}

TEST(PortPlanTest, AnyFreePortIsTriedWhereThatIsAskedFor) {
  const auto plan = plan_ports({.port = 9400, .on_port_taken = OnPortTaken::any}, 20);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan.value().listen.port, 9420);
  EXPECT_TRUE(plan.value().tries_any);
  EXPECT_EQ(planned({.port = 0}, 3).port, 0);
}

TEST(PortPlanTest, APortBeyondTheLastIsAnError) {
  const auto plan = plan_ports({.port = 65'530, .port_count = 1}, 6);
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.error().message.find("65530"), std::string::npos);
  EXPECT_NE(plan.error().message.find("local rank 6"), std::string::npos);
  EXPECT_TRUE(plan_ports({.port = 65'530, .port_count = 1}, 5).ok());
}

/// Where `plan` is served; never stopped, as that takes up to 2 s.
Result<std::uint16_t, Status> serve(const PortPlan& plan) {
  static auto* const servers = new std::vector<std::unique_ptr<HttpServer>>();
  auto server = listen(plan, [](const HttpRequest&) { return HttpResponse(); });
  if (!server.ok()) return server.error();
  return servers->emplace_back(std::move(server).value())->port();
}

TEST(PortPlanTest, TakenPortsAreGoneRound) {
  // A server somewhere is the end of a range of three: rank 2 finds its own port taken, and goes on
  // at the start of the range.
  const std::uint16_t taken = serve({.listen = {.port = 0}}).value();
  const auto base = static_cast<std::uint16_t>(taken - 2);
  ExporterOptions options{.port = base, .port_count = 3};
  const auto found = serve(plan_ports(options, 2).value());
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_TRUE(found.value() == base || found.value() == base + 1) << found.value();

  options.on_port_taken = OnPortTaken::fail;
  const auto refused = serve(plan_ports(options, 2).value());
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find(std::to_string(taken)), std::string::npos);

  options.on_port_taken = OnPortTaken::any;
  const auto any = serve(plan_ports(options, 2).value());
  ASSERT_TRUE(any.ok()) << any.error().message;
  EXPECT_NE(any.value(), taken);
}

}  // namespace
}  // namespace gpupool::internal
