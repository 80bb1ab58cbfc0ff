// Random programs with graph captures: announced, by a function or for a reference, and not; graphs
// that are launched again on any stream, between and beside everything else; private pools that are
// released.
//
// Judged by the device, which refuses work that races or lies on what is not mapped; by the bytes
// of ordinary blocks, which no graph may have overwritten; and by a model of whose each byte is:
// what a private pool has served is nobody else's until that is released.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gpupool/pool.h"
#include "gpupool/simulated_backend.h"
#include "tests/property/choices.h"
#include "tests/support/random.h"
#include "tests/support/units.h"

namespace gpupool::test {
namespace {

constexpr std::size_t kStreams = 3;
constexpr std::uint64_t kPools = 3;

struct Options {
  Backing backing;
  Recycling recycling;
  AliasReuse alias_reuse;
  CrossStreamPolicy policy;
};

class Program {
 public:
  Program(std::uint64_t seed, const Options& options)
      : random_(seed), device_({.capacity_bytes = 256 * kMiB, .memory = SimulatedMemory::real}) {
    PoolOptions pool_options;
    pool_options.capacity = 96 * kMiB;
    pool_options.backing = options.backing;
    pool_options.runtime.recycling = options.recycling;
    pool_options.runtime.alias_reuse = options.alias_reuse;
    pool_options.runtime.policy = options.policy;
    pool_ = std::move(Pool::create(device_, pool_options)).value();
    for (std::size_t i = 0; i < kStreams; ++i) {
      streams_.push_back({device_.create_stream(), {}});
      streams_.back().ref = pool_->adopt_stream(streams_.back().raw).value();
    }
    unknown_ = device_.create_stream();
  }
  ~Program() { device_.complete_all(); }

  void run(int steps) {
    for (int i = 0; i < steps && failure_.empty(); ++i) {
      step();
      if (device_.violation_count() > 0) fail(device_.last_violation());
      if (i % 16 == 0) pool_->check_invariants();
      const StatsV1 stats = pool_->stats();
      if (stats.held_bytes != stats.live_requested_bytes + stats.waste_bytes + stats.cached_bytes +
                                  stats.pending_bytes + stats.free_bytes) {
        fail("held is not the sum of its parts");
      }
      if (stats.pinned_bytes > stats.held_bytes) fail("more is pinned than held");
      if (stats.unpinned_pending_bytes > stats.pending_bytes ||
          stats.pending_bytes - stats.unpinned_pending_bytes > stats.pinned_bytes) {
        fail("what pends is neither pinned nor waits");
      }
    }
    finish();
  }
  const std::string& failure() const { return failure_; }
  std::uint64_t replays() const { return replays_; }
  std::uint64_t private_blocks() const { return private_blocks_; }

 private:
  struct Stream {
    RawStream raw;
    StreamRef ref;
  };
  struct Block {
    char* pointer = nullptr;
    std::uint64_t bytes = 0;
    std::size_t owner = 0;
    std::uint64_t home = 0;     // of the model; 0: ordinary
    std::uint64_t pattern = 0;  // at both ends of it
  };
  /// What a private pool has served since it began anew.
  struct Home {
    CapturePoolId id;
    bool is_released = false;
    std::vector<Block> served;
  };
  struct Capture {
    std::size_t stream = 0;
    enum class CaptureKind { function, reference, unannounced } kind = CaptureKind::function;
    CapturePoolId id;
    std::vector<Block> blocks;
  };
  struct Graph {
    SimulatedGraph graph;
    std::uint64_t home = 0;
  };

  void fail(const std::string& text) {
    if (failure_.empty()) failure_ = text;
  }

  void step() {
    switch (random_.below(16)) {
      case 0: begin(); break;
      case 1: end(); break;
      case 2:
      case 3:
      case 4: launch_graph(); break;
      case 5: release(); break;
      case 6: pool_->maintain(std::chrono::hours(1)); break;
      case 7: random_.below(4) == 0 ? (void)pool_->trim(0) : (void)pool_->drain_caches(); break;
      case 8: device_.complete(streams_[random_.below(kStreams)].raw); break;
      case 9: device_.complete_all(); break;
      case 10:
      case 11:
      case 12: free_some(); break;
      default: allocate(); break;
    }
  }

  std::uint64_t size() {
    const std::uint64_t most = std::uint64_t{512} << random_.below(15);
    return 1 + random_.below(most);
  }

  void begin() {
    if (capture_ != nullptr) return;
    auto capture = std::make_unique<Capture>();
    capture->stream = random_.below(kStreams);
    capture->kind = static_cast<Capture::CaptureKind>(random_.below(3));
    capture->id = {1, 1 + random_.below(kPools)};
    const Stream& stream = streams_[capture->stream];
    if (capture->kind == Capture::CaptureKind::function) {
      const auto takes = [raw = stream.raw](RawStream asked) { return asked == raw; };
      if (!pool_->begin_allocate_to_pool(capture->id, takes).ok()) fail("begin");
    } else if (capture->kind == Capture::CaptureKind::reference) {
      if (!pool_->begin_capture(stream.ref, capture->id).ok()) fail("begin");
    }
    device_.begin_capture(stream.raw);
    if (capture->kind == Capture::CaptureKind::unannounced) {
      capture->id = unannounced_capture(device_.capture_id(stream.raw).value());
    }
    capture_ = std::move(capture);
  }

  void end() {
    if (capture_ == nullptr) return;
    const Stream& stream = streams_[capture_->stream];
    for (const Block& block : capture_->blocks) {
      if (random_.below(4) == 0) {
        live_.push_back(block);  // the graph's output
      } else if (!pool_->deallocate(block.pointer, stream.raw)) {
        fail("a block of the capture is not taken back");
      }
    }
    const SimulatedGraph graph = device_.end_capture(stream.raw);
    if (graph.value == 0) fail("the capture was invalidated");
    if (capture_->kind == Capture::CaptureKind::function &&
        !pool_->end_allocate_to_pool(capture_->id).ok()) {
      fail("end");
    }
    if (capture_->kind == Capture::CaptureKind::reference && !pool_->end_capture(stream.ref).ok()) {
      fail("end");
    }
    graphs_.push_back({graph, home_of(capture_->id)});
    capture_.reset();
  }

  /// The number of the private pool as it is now, from 1 on.
  std::uint64_t home_of(CapturePoolId id) {
    for (std::size_t i = 0; i < homes_.size(); ++i) {
      if (homes_[i].id == id && !homes_[i].is_released) return i + 1;
    }
    homes_.push_back({id, false, {}});
    return homes_.size();
  }

  void launch_graph() {
    if (graphs_.empty()) return;
    const Graph& graph = graphs_[random_.below(graphs_.size())];
    if (homes_[graph.home - 1].is_released) return;
    // Graphs of one private pool are launched one after the other.
    for (const Stream& stream : streams_) {
      if (!is_captured(stream.raw)) order(stream.raw, unknown_);
    }
    if (!device_.launch_graph(graph.graph, unknown_).ok()) fail("a graph cannot be launched");
    ++replays_;
  }

  bool is_captured(RawStream raw) {
    return capture_ != nullptr && streams_[capture_->stream].raw == raw;
  }

  void order(RawStream earlier, RawStream later) {
    const EventHandle event = device_.create_event().value();
    if (!device_.record_event(event, earlier).ok() || !device_.wait_event(later, event).ok()) {
      fail("two streams are not ordered");
    }
    (void)device_.destroy_event(event);
  }

  void release() {
    if (homes_.empty() || random_.below(3) != 0) return;
    const std::uint64_t home = 1 + random_.below(homes_.size());
    if (homes_[home - 1].is_released) return;
    if (capture_ != nullptr && home_of(capture_->id) == home) return;
    if (!pool_->release_pool(homes_[home - 1].id).ok()) fail("release");
    // What still runs is waited for: by the device, and by the model when it has a block judged.
    homes_[home - 1].is_released = true;
    for (const Graph& graph : graphs_) {
      if (graph.home == home) device_.destroy_graph(graph.graph);
    }
    std::erase_if(graphs_, [&](const Graph& graph) { return graph.home == home; });
  }

  void allocate() {
    const std::size_t at = random_.below(kStreams);
    const Stream& stream = streams_[at];
    const bool in_capture = is_captured(stream.raw);
    const bool by_reference =
        in_capture ? capture_->kind == Capture::CaptureKind::reference ||
                         (capture_->kind == Capture::CaptureKind::function && random_.below(2) == 0)
                   : random_.below(2) == 0;
    const std::uint64_t bytes = size();
    const auto result =
        by_reference ? pool_->allocate(bytes, stream.ref) : pool_->allocate(bytes, stream.raw);
    if (!result.ok()) return;
    Block block{static_cast<char*>(result.value()), bytes, at, 0};
    if (in_capture) {
      block.home = home_of(capture_->id);
      ++private_blocks_;
    }
    judge(block);
    if (!launch(stream.raw, block, in_capture)) fail("work on a new block is refused");
    if (in_capture) {
      homes_[block.home - 1].served.push_back(block);
      capture_->blocks.push_back(block);
      if (random_.below(2) == 0) free_in_capture();
    } else {
      live_.push_back(block);
    }
  }

  void free_in_capture() {
    const std::size_t at = random_.below(capture_->blocks.size());
    const Block block = capture_->blocks[at];
    if (!pool_->deallocate(block.pointer, streams_[capture_->stream].raw))
      fail("a free is refused");
    capture_->blocks.erase(capture_->blocks.begin() + static_cast<std::ptrdiff_t>(at));
  }

  /// What a private pool that is not released has served is nobody else's.
  void judge(const Block& block) {
    for (std::size_t i = 0; i < homes_.size(); ++i) {
      const Home& home = homes_[i];
      if (home.is_released || block.home == i + 1) continue;
      for (const Block& served : home.served) {
        if (served.pointer < block.pointer + block.bytes &&
            block.pointer < served.pointer + served.bytes) {
          fail("what a private pool has served is given to another");
        }
      }
    }
  }

  template <class Visit>
  static void visit_ends(const Block& block, Visit visit) {
    const auto length = static_cast<std::size_t>(std::min<std::uint64_t>(block.bytes, 8));
    visit(block.pointer, length);
    visit(block.pointer + (block.bytes - length), length);
  }

  /// Work that writes the block's pattern, each time that it runs.
  bool launch(RawStream raw, Block& block, bool in_capture) {
    SimulatedWork work = work_on(block);
    block.pattern = ++pattern_ * 0x0101010101010101;
    work.body = [block] {
      visit_ends(block,
                 [&](char* at, std::size_t length) { std::memcpy(at, &block.pattern, length); });
    };
    if (!in_capture) work.until_completed = random_.below(3) == 0;
    return device_.launch(raw, work).ok();
  }

  /// Work that looks whether the pattern is still there.
  bool launch_check(RawStream raw, const Block& block) {
    SimulatedWork work = work_on(block);
    work.body = [block, this] {
      visit_ends(block, [&](const char* at, std::size_t length) {
        if (std::memcmp(at, &block.pattern, length) != 0) fail("a block was overwritten");
      });
    };
    return device_.launch(raw, work).ok();
  }

  SimulatedWork work_on(const Block& block) {
    SimulatedWork work;
    work.address = reinterpret_cast<DeviceAddress>(block.pointer);
    work.bytes = block.bytes;
    work.duration_ns = 1 + random_.below(100'000);
    return work;
  }

  void free_some() {
    if (live_.empty()) return;
    const std::size_t index = random_.below(live_.size());
    const Block block = live_[index];
    const std::size_t at = random_.below(kStreams);
    const Stream& stream = streams_[at];
    // A correct program: the stream that frees comes after the others.
    if (is_captured(stream.raw)) return;
    for (const Stream& other : streams_) {
      if (&other != &stream && !is_captured(other.raw)) order(other.raw, stream.raw);
    }
    if (is_captured(streams_[block.owner].raw)) return;
    order(unknown_, stream.raw);
    if (block.home == 0 && !launch_check(stream.raw, block)) fail("a look at a block is refused");
    live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(index));
    const bool by_reference = random_.below(2) == 0;
    const bool is_taken = by_reference ? pool_->deallocate(block.pointer, stream.ref)
                                       : pool_->deallocate(block.pointer, stream.raw);
    if (!is_taken) fail("a live block is not taken back");
  }

  void finish() {
    if (!failure_.empty()) return;
    end();
    for (std::size_t i = 0; i < homes_.size(); ++i) {
      if (!pool_->release_pool(homes_[i].id).ok()) fail("release");
    }
    device_.complete_all();
    for (const Block& block : live_) {
      if (!pool_->deallocate(block.pointer, streams_[0].ref)) fail("the last free is refused");
    }
    device_.complete_all();
    pool_->maintain(std::chrono::hours(1));
    pool_->trim(0);
    pool_->check_invariants();
    if (pool_->stats().pinned_bytes != 0) fail("something is pinned at the end");
    if (device_.held_bytes() != 0) fail("something is held at the end");
    pool_.reset();
    if (device_.violation_count() > 0) fail(device_.last_violation());
    if (device_.object_count() != 0) fail("objects are left behind");
  }

  Random random_;
  SimulatedBackend device_;
  std::unique_ptr<Pool> pool_;
  std::vector<Stream> streams_;
  RawStream unknown_ = nullptr;
  std::unique_ptr<Capture> capture_;
  std::vector<Home> homes_;
  std::vector<Graph> graphs_;
  std::vector<Block> live_;
  std::uint64_t pattern_ = 0;
  std::uint64_t replays_ = 0;
  std::uint64_t private_blocks_ = 0;
  std::string failure_;
};

struct CaptureKind {
  const char* name;
  Options options;
};

class CaptureListTest : public testing::TestWithParam<CaptureKind> {};

TEST_P(CaptureListTest, NobodyElseGetsWhatAGraphUses) {
  std::uint64_t replays = 0;
  std::uint64_t private_blocks = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Program program(seed, GetParam().options);
    program.run(600);
    ASSERT_EQ(program.failure(), "") << "seed " << seed;
    replays += program.replays();
    private_blocks += program.private_blocks();
  }
  // It has tried what it is to judge.
  EXPECT_GT(replays, 1000u);
  EXPECT_GT(private_blocks, 1000u);
}

INSTANTIATE_TEST_SUITE_P(
    All, CaptureListTest,
    testing::Values(
        CaptureKind{"Off", {kVmm, Recycling::off, AliasReuse::wait, CrossStreamPolicy::when_done}},
        CaptureKind{"Eager",
                    {kVmm, Recycling::eager, AliasReuse::wait, CrossStreamPolicy::when_done}},
        CaptureKind{
            "SameStream",
            {kVmm, Recycling::eager, AliasReuse::same_stream, CrossStreamPolicy::when_done}},
        CaptureKind{"Wait", {kVmm, Recycling::eager, AliasReuse::wait, CrossStreamPolicy::wait}},
        CaptureKind{"Never", {kVmm, Recycling::eager, AliasReuse::wait, CrossStreamPolicy::never}},
        CaptureKind{"CudaMalloc",
                    {Backing::cudamalloc, Recycling::eager, AliasReuse::wait,
                     CrossStreamPolicy::when_done}}),
    [](const auto& kind) { return std::string(kind.param.name); });

}  // namespace
}  // namespace gpupool::test
