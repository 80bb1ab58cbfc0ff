// The recorded samples played operation by operation, with the pool's books looked at after each:
// the accounting identity, what the device counts, and (where it is affordable) every structure.
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "gpupool/pool.h"
#include "gpupool/simulated_backend.h"
#include "tools/device/device.h"
#include "tools/replay/plan.h"
#include "tools/trace/trace.h"

namespace gpupool::tools {
namespace {

// check_invariants walks every structure: after each of the first operations, then now and then.
constexpr std::size_t kCheckedClosely = 20'000;
constexpr std::size_t kCheckedEvery = 1'000;

struct Case {
  std::string file;  // path, or the name of a sample
  Backing backing = Backing::vmm;
  bool honour_completions = false;
};

/// The samples, and every trace in the folder that the build was told of.
std::vector<Case> all_cases() {
  std::vector<Case> cases;
  const std::string samples = std::string(GPUPOOL_TEST_DATA) + "/";
  cases.push_back({samples + "fsdp_streams-s1.trace.gz"});
  cases.push_back({samples + "fsdp_streams-s1.trace.gz", Backing::vmm, true});
  cases.push_back({samples + "fsdp_streams-s1.trace.gz", Backing::cudamalloc});
  cases.push_back({samples + "resnet_multiscale-s1.trace.gz"});
  const std::filesystem::path more = GPUPOOL_MORE_TRACES;
  if (more.empty()) return cases;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(more)) {
    const std::string extension = entry.path().extension();
    if (extension == ".gz" || extension == ".csv") cases.push_back({entry.path()});
  }
  return cases;
}

/// For GoogleTest's messages and the names of ctest.
void PrintTo(const Case& value, std::ostream* out) {  // NOLINT(readability-identifier-naming)
  *out << value.file;
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  std::string name = std::to_string(info.index) + "_" +
                     std::filesystem::path(info.param.file).stem().stem().string();
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name + "_" + to_string(info.param.backing) +
         (info.param.honour_completions ? "_completions" : "");
}

class TraceIdentity : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    Result<Trace, Status> trace = load_trace(GetParam().file);
    ASSERT_TRUE(trace.ok()) << trace.error().message;
    trace_ = std::move(trace).value();
    PlanOptions options;
    options.honour_completions = GetParam().honour_completions;
    steps_ = make_plan(trace_, options).value();

    device_ = open_device(DeviceChoice::simulated, SimulatedTime::virtual_time).value();
    streams_ = DeviceStreams::create(device_, trace_.streams).value();
    PoolOptions pool_options;
    pool_options.backing = GetParam().backing;
    pool_options.on_misuse = OnMisuse::abort;
    pool_ = Pool::create(*device_.backend, pool_options).value();
    for (RawStream raw : streams_->handles()) refs_.push_back(pool_->adopt_stream(raw).value());
    pointers_.assign(trace_.slot_count, nullptr);
    sizes_.assign(trace_.slot_count, 0);
  }

  void TearDown() override {
    for (const StreamRef stream : refs_) pool_->release_stream(stream);
    pool_.reset();
    streams_.reset();
    if (device_.simulated != nullptr) {
      EXPECT_EQ(device_.simulated->violation_count(), 0U) << device_.simulated->last_violation();
      EXPECT_EQ(device_.simulated->object_count(), 0U);
    }
  }

  void apply(const Step& step) {
    switch (step.kind) {
      case StepKind::allocate: {
        const Result<void*> block = pool_->allocate(step.amount, refs_[step.stream]);
        ASSERT_TRUE(block.ok()) << pool_->last_failure().text();
        pointers_[step.slot] = block.value();
        sizes_[step.slot] = step.amount;
        live_bytes_ += step.amount;
        break;
      }
      case StepKind::free:
        ASSERT_TRUE(pool_->deallocate(pointers_[step.slot], refs_[step.stream]));
        pointers_[step.slot] = nullptr;
        live_bytes_ -= sizes_[step.slot];
        break;
      case StepKind::maintain:
        device_.simulated->advance_ns(step.amount);
        pool_->maintain();
        break;
    }
  }

  void expect_identity() const {
    const StatsV1 stats = pool_->stats();
    ASSERT_EQ(stats.held_bytes, stats.live_requested_bytes + stats.waste_bytes +
                                    stats.cached_bytes + stats.pending_bytes + stats.free_bytes);
    ASSERT_EQ(stats.held_bytes, device_.backend->held_bytes());
    ASSERT_EQ(stats.live_requested_bytes, live_bytes_);
    ASSERT_EQ(stats.requests, stats.hits + stats.misses);
  }

  Trace trace_;
  std::vector<Step> steps_;
  Device device_;
  std::unique_ptr<DeviceStreams> streams_;
  std::unique_ptr<Pool> pool_;
  std::vector<StreamRef> refs_;
  std::vector<void*> pointers_;
  std::vector<std::uint64_t> sizes_;
  std::uint64_t live_bytes_ = 0;
};

TEST_P(TraceIdentity, HoldsAfterEachOperation) {
  std::size_t done = 0;
  for (const Step& step : steps_) {
    apply(step);
    expect_identity();
    if (HasFatalFailure()) FAIL() << "after step " << done;
    if (done < kCheckedClosely || done % kCheckedEvery == 0) pool_->check_invariants();
    ++done;
  }
  for (std::size_t slot = 0; slot < pointers_.size(); ++slot) {
    // Any stream of the trace may free what is left: no work is pending anywhere.
    ASSERT_TRUE(pool_->deallocate(pointers_[slot], refs_[0]));
  }
  EXPECT_EQ(pool_->stats().live_requested_bytes, 0U);
  pool_->check_invariants();
}

INSTANTIATE_TEST_SUITE_P(Recorded, TraceIdentity, ::testing::ValuesIn(all_cases()), case_name);

}  // namespace
}  // namespace gpupool::tools
