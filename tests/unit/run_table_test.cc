#include "runs/run_table.h"

#include <gtest/gtest.h>

#include "base/units.h"
#include "gpupool/simulated_backend.h"
#include "tests/unit/epochs.h"

namespace gpupool::internal {
namespace {

class RunTableTest : public testing::Test {
 protected:
  RunTableTest() : streams_(device_), runs_(streams_, {std::uint64_t{64} * kUnitBytes}) {
    EXPECT_TRUE(runs_.reserve(4096, 4096));
    for (StreamIndex i = 0; i < 6; ++i) {
      raw_.push_back(device_.create_stream());
      const auto* state = streams_.adopt(raw_[i], device_.stream_id(raw_[i]).value());
      EXPECT_EQ(state->index(), i);
      runs_.know_stream(i);
    }
  }
  ~RunTableTest() override { runs_.check_invariants(); }

  /// Tickets of work that is unfinished until complete_all().
  TicketSet busy(std::initializer_list<StreamIndex> streams) {
    TicketSet tickets;
    for (const StreamIndex stream : streams) {
      SimulatedWork work;
      work.until_completed = true;
      EXPECT_TRUE(device_.launch(raw_[stream], work).ok());
      tickets.add(streams_.ticket(stream), streams_);
    }
    streams_.close_epochs();
    return tickets;
  }
  void complete_all() {
    device_.complete_all();
    streams_.poll();
    runs_.refresh();
  }
  RunId take(std::uint32_t units, StreamIndex stream = 0, std::uint32_t align_units = 1,
             Reach reach = Reach::everywhere) {
    const RunId id = runs_.take(units, align_units, stream, reach, RunKind::block);
    runs_.check_invariants();
    return id;
  }
  void put(RunId id, const TicketSet& tickets = TicketSet()) {
    runs_.put(id, tickets);
    runs_.check_invariants();
  }

  SimulatedBackend device_;
  Epochs streams_;
  RunTable runs_;
  std::vector<RawStream> raw_;
};

class LoneStreamTest : public testing::Test {
 protected:
  LoneStreamTest() : streams_(device_), runs_(streams_, {}) {
    EXPECT_TRUE(runs_.reserve(4096, 4096));
    know();
  }
  ~LoneStreamTest() override { runs_.check_invariants(); }

  void know() {
    raw_.push_back(device_.create_stream());
    const auto* state = streams_.adopt(raw_.back(), device_.stream_id(raw_.back()).value());
    runs_.know_stream(state->index());
    runs_.check_invariants();
  }
  TicketSet busy() {
    SimulatedWork work;
    work.until_completed = true;
    EXPECT_TRUE(device_.launch(raw_[0], work).ok());
    TicketSet tickets;
    tickets.add(streams_.ticket(0), streams_);
    streams_.close_epochs();
    return tickets;
  }
  RunId take(std::uint32_t units, StreamIndex stream = 0) {
    return runs_.take(units, 1, stream, Reach::everywhere, RunKind::block);
  }

  SimulatedBackend device_;
  Epochs streams_;
  RunTable runs_;
  std::vector<RawStream> raw_;
};

TEST_F(LoneStreamTest, JoinsWhatItFreedWithWhatWasNeverUsed) {
  runs_.add(0, 64);
  runs_.put(take(16), busy());
  EXPECT_EQ(runs_.run_count(), 1u);
  EXPECT_EQ(runs_.pending_bytes(), 0u);
  EXPECT_EQ(runs_.largest_ready_units(), 64u);
  EXPECT_FALSE(runs_.are_idle(runs_.free_at(0), {0, 1}));
  device_.complete_all();
  streams_.poll();
  EXPECT_TRUE(runs_.are_idle(runs_.free_at(0), {0, 1}));
}

TEST_F(LoneStreamTest, ASecondStreamGetsNothingThatIsUnfinished) {
  runs_.add(0, 64);
  runs_.add(128, 8);
  runs_.put(take(16), busy());
  know();
  EXPECT_EQ(runs_.pending_bytes(), 64 * kUnitBytes);
  EXPECT_EQ(runs_.largest_ready_units(), 8u);
  EXPECT_EQ(take(16, 1), 0u);
  EXPECT_NE(take(16, 0), 0u);
  device_.complete_all();
  streams_.poll();
  runs_.refresh();
  EXPECT_NE(take(16, 1), 0u);
}

TEST_F(LoneStreamTest, PartsForAQuestionAndUnitesAgain) {
  runs_.add(0, 64);
  runs_.put(take(16), busy());
  runs_.part();
  runs_.check_invariants();
  EXPECT_FALSE(runs_.can_take(1, 1, kAnybody, Reach::everywhere));
  runs_.unite();
  runs_.check_invariants();
  EXPECT_EQ(runs_.largest_ready_units(), 64u);
  know();
  runs_.unite();  // not with two
  EXPECT_EQ(runs_.largest_ready_units(), 0u);
}

TEST_F(RunTableTest, CutsAndJoins) {
  runs_.add(0, 100);
  const RunId a = take(10);
  const RunId b = take(20);
  const RunId c = take(30);
  EXPECT_EQ(runs_[a].start, 0u);
  EXPECT_EQ(runs_[b].start, 10u);
  EXPECT_EQ(runs_[c].start, 30u);
  EXPECT_EQ(runs_.ready_bytes(), 40 * kUnitBytes);
  EXPECT_EQ(runs_.splits(), 3u);
  put(a);
  EXPECT_EQ(runs_.largest_ready_units(), 40u);
  put(c);
  EXPECT_EQ(runs_.largest_ready_units(), 70u);
  put(b);
  EXPECT_EQ(runs_.largest_ready_units(), 100u);
  EXPECT_EQ(runs_.run_count(), 1u);
  EXPECT_EQ(take(101), 0u);
}

TEST_F(RunTableTest, TakesTheBestFitAndTheLowestOfEquals) {
  runs_.add(0, 8);
  runs_.add(16, 4);
  runs_.add(32, 4);
  runs_.add(64, 16);
  EXPECT_EQ(runs_[take(3)].start, 16u);
  EXPECT_EQ(runs_[take(4)].start, 32u);
  EXPECT_EQ(runs_[take(5)].start, 0u);
  EXPECT_EQ(runs_[take(9)].start, 64u);
}

TEST_F(RunTableTest, KeepsTheArenasEndForLast) {
  runs_.add(0, 32);
  runs_.add(64, 8);
  runs_.set_end(72);
  EXPECT_EQ(take(33, 0, 1, Reach::before_end), 0u);
  EXPECT_EQ(runs_[take(8)].start, 0u);  // although the end fits better
  put(take(24));
  EXPECT_EQ(runs_[take(24)].start, 8u);
  EXPECT_EQ(take(8, 0, 1, Reach::before_end), 0u);
  EXPECT_EQ(runs_[take(8)].start, 64u);
}

TEST_F(RunTableTest, UsesTheArenasEndAgainWithoutBeingTold) {
  runs_.set_end(64);
  runs_.add(0, 64);
  EXPECT_EQ(take(8, 0, 1, Reach::before_end), 0u);
  const RunId first = take(16);
  put(first);
  // As far as it was used, and no further.
  EXPECT_EQ(take(17, 0, 1, Reach::before_end), 0u);
  const RunId again = take(16, 0, 1, Reach::before_end);
  ASSERT_NE(again, 0u);
  put(again);
  runs_.restart_use();
  EXPECT_EQ(take(8, 0, 1, Reach::before_end), 0u);
}

TEST_F(RunTableTest, TheEndMoves) {
  runs_.set_end(64);
  runs_.add(0, 64);
  const RunId last = take(16, 0, 16);
  EXPECT_EQ(runs_[last].start, 0u);
  runs_.set_end(96);  // what was at the end is before it
  runs_.check_invariants();
  EXPECT_EQ(runs_[take(8, 0, 1, Reach::before_end)].start, 16u);
  runs_.add(64, 32);
  runs_.check_invariants();
  EXPECT_EQ(take(41, 0, 1, Reach::before_end), 0u);
  EXPECT_EQ(runs_[take(41)].start, 24u);
  runs_.set_end(80);
  runs_.check_invariants();
}

TEST_F(RunTableTest, Aligns) {
  runs_.add(3, 61);
  const RunId id = take(8, 0, 16);
  EXPECT_EQ(runs_[id].start, 16u);
  EXPECT_EQ(runs_[take(13)].start, 3u);  // what the cut left in front
  EXPECT_EQ(runs_[take(16, 0, 32)].start, 32u);
  EXPECT_EQ(take(8, 0, 64), 0u);
}

TEST_F(RunTableTest, AnotherStreamWaitsForTheWorkOfTheOneThatFreed) {
  runs_.add(0, 32);
  put(take(32, 0), busy({0}));
  EXPECT_EQ(runs_.ready_bytes(), 0u);
  EXPECT_EQ(runs_.pending_bytes(), 32 * kUnitBytes);
  EXPECT_EQ(take(1, 1), 0u);
  const RunId own = take(32, 0);  // a stream's own work is before what it does next
  ASSERT_NE(own, 0u);
  put(own, busy({0}));
  complete_all();
  EXPECT_EQ(runs_.pending_bytes(), 0u);
  EXPECT_NE(take(32, 1), 0u);
}

TEST_F(RunTableTest, WhatSeveralStreamsUseIsNobodys) {
  runs_.add(0, 32);
  put(take(32), busy({0, 1}));
  EXPECT_EQ(take(1, 0), 0u);
  EXPECT_EQ(take(1, 1), 0u);
  device_.complete(raw_[0]);
  streams_.poll();
  runs_.refresh();
  EXPECT_EQ(take(1, 0), 0u);
  EXPECT_NE(take(1, 1), 0u);  // only its own work is left
}

TEST_F(RunTableTest, MoreThanFourStreamsMakeAFence) {
  runs_.add(0, 32);
  put(take(32), busy({0, 1, 2, 3, 4}));
  for (StreamIndex i = 0; i < 5; ++i) {
    for (StreamIndex stream = 0; stream < 6; ++stream) EXPECT_EQ(take(1, stream), 0u);
    device_.complete(raw_[i]);
    streams_.poll();
    runs_.refresh();
  }
  EXPECT_NE(take(32, 5), 0u);
}

TEST_F(RunTableTest, NeighboursJoinOnlyWhereTheSameStreamsMayUseThem) {
  runs_.add(0, 64);
  const RunId a = take(16);
  const RunId b = take(16);
  put(a, busy({1}));
  EXPECT_EQ(runs_.largest_ready_units(), 32u);
  put(b, busy({2}));
  EXPECT_EQ(runs_.largest_ready_units(), 32u);  // ready memory beside it stays ready
  EXPECT_EQ(runs_.largest_free_units(), 64u);
  EXPECT_EQ(take(48, 0), 0u);
  EXPECT_NE(take(48, 2), 0u);  // across the border of its own and what is ready
}

TEST_F(RunTableTest, JoinsAfterCompletion) {
  runs_.add(0, 64);
  const RunId a = take(16);
  const RunId b = take(16);
  const RunId c = take(32);
  put(b, busy({2}));
  put(a, busy({1}));
  put(c, busy({1, 2}));
  EXPECT_EQ(runs_.run_count(), 3u);
  complete_all();
  EXPECT_EQ(runs_.run_count(), 1u);
  EXPECT_EQ(runs_.largest_ready_units(), 64u);
}

TEST_F(RunTableTest, ARestOfACutKeepsItsTickets) {
  runs_.add(0, 64);
  put(take(64, 1), busy({1}));
  const RunId front = take(16, 1);
  ASSERT_NE(front, 0u);
  EXPECT_EQ(runs_.pending_bytes(), 48 * kUnitBytes);
  EXPECT_EQ(take(1, 0), 0u);
  // Nobody touched the block in its second life; its first use is still unfinished.
  const TicketSet tickets = runs_[front].tickets;
  EXPECT_EQ(tickets.holder(), 1u);
}

TEST_F(RunTableTest, TakesAcrossABorderWithAlignment) {
  runs_.add(0, 64);
  const RunId live = take(3);
  const RunId ready = take(9);
  const RunId pending = take(8);
  put(ready);
  put(pending, busy({3}));
  // From inside the first ready run, over the pending one, into the rest.
  const RunId id = take(48, 3, 8);
  ASSERT_NE(id, 0u);
  EXPECT_EQ(runs_[id].start, 8u);
  EXPECT_EQ(runs_[id].units, 48u);
  EXPECT_EQ(runs_[id].tickets.holder(), 3u);
  EXPECT_EQ(runs_.ready_bytes(), (5 + 8) * kUnitBytes);
  EXPECT_EQ(runs_.pending_bytes(), 0u);
  put(id, busy({3}));
  put(live);
  complete_all();
  EXPECT_EQ(runs_.largest_ready_units(), 64u);
}

TEST_F(RunTableTest, CountsFreeRunsBySizeAndWatchesSizes) {
  runs_.add(0, 32);
  runs_.add(64, 64);
  StatsV1 stats;
  runs_.add_to(stats);
  EXPECT_EQ(stats.free_runs_by_log2[17], 1u);  // 128 KiB
  EXPECT_EQ(stats.free_runs_by_log2[18], 1u);
  EXPECT_EQ(stats.free_run_bytes_by_log2[18], 64 * kUnitBytes);
  EXPECT_EQ(stats.watched_count, 1u);
  EXPECT_EQ(stats.watched[0].unusable_free_bytes, 32 * kUnitBytes);
  take(1);
  stats = StatsV1();
  runs_.add_to(stats);
  EXPECT_EQ(stats.free_runs_by_log2[16], 1u);
  EXPECT_EQ(stats.watched[0].unusable_free_bytes, 31 * kUnitBytes);
}

TEST_F(RunTableTest, ForgetsWhatIsGivenBackToTheDriver) {
  runs_.add(0, 512);
  runs_.add(512, 512);
  const RunId leaving = runs_.take_at(runs_.free_at(0), 512, 512, RunKind::leaving);
  EXPECT_EQ(runs_[leaving].start, 512u);
  runs_.remove(leaving);
  EXPECT_EQ(runs_.ready_bytes(), 512 * kUnitBytes);
  EXPECT_EQ(runs_.at(512), 0u);
  EXPECT_EQ(take(513), 0u);
}

}  // namespace
}  // namespace gpupool::internal
