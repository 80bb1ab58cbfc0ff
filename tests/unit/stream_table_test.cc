#include "stream/stream_table.h"

#include <gtest/gtest.h>

#include <thread>

#include "gpupool/faulty_backend.h"
#include "gpupool/simulated_backend.h"
#include "stream/ticket_set.h"
#include "tests/unit/epochs.h"

namespace gpupool::internal {
namespace {

class StreamTableTest : public testing::Test {
 protected:
  ~StreamTableTest() override {
    streams_.check_invariants();
    device_.complete_all();
    EXPECT_EQ(device_.violation_count(), 0u) << device_.last_violation();
  }
  StreamState* adopt(RawStream raw) { return streams_.adopt(raw, device_.stream_id(raw).value()); }
  StreamState* adopt_new() { return adopt(device_.create_stream()); }
  void work_on(RawStream raw) {
    SimulatedWork work;
    work.until_completed = true;
    ASSERT_TRUE(device_.launch(raw, work).ok());
  }

  SimulatedBackend device_;
  FaultyBackend faulty_{device_};
  Epochs streams_{faulty_};
};

TEST_F(StreamTableTest, TheSameStreamIsOneState) {
  const RawStream raw = device_.create_stream();
  StreamState* state = adopt(raw);
  EXPECT_EQ(adopt(raw), state);
  EXPECT_EQ(streams_.find(state->id()), state);
  EXPECT_EQ(streams_.stream_count(), 1u);
  EXPECT_TRUE(streams_.is_known(state));
  EXPECT_FALSE(streams_.is_known(nullptr));
  StreamTable other;
  EXPECT_FALSE(other.is_known(state));
}

TEST_F(StreamTableTest, AnEpochIsCompleteWhenItsEventIs) {
  StreamState* state = adopt_new();
  work_on(state->raw());
  const Ticket first = streams_.ticket(state->index());
  EXPECT_TRUE(streams_.has_unfinished());
  EXPECT_EQ(streams_.poll(), 0u);
  EXPECT_FALSE(streams_.is_complete(first));
  EXPECT_TRUE(streams_.close_epoch(state->index()));
  EXPECT_EQ(streams_.epochs_closed(), 1u);
  work_on(state->raw());
  const Ticket second = streams_.ticket(state->index());
  EXPECT_GT(second.epoch, first.epoch);
  EXPECT_TRUE(streams_.close_epoch(state->index()));
  EXPECT_TRUE(device_.complete_next(state->raw()));
  EXPECT_EQ(streams_.poll(), 1u);
  EXPECT_TRUE(streams_.is_complete(first));
  EXPECT_FALSE(streams_.is_complete(second));
  device_.complete_all();
  EXPECT_EQ(streams_.poll(), 1u);
  EXPECT_TRUE(streams_.is_complete(second));
  EXPECT_FALSE(streams_.has_unfinished());
}

TEST_F(StreamTableTest, AnEpochInWhichNothingWasFreedIsNotClosed) {
  StreamState* state = adopt_new();
  EXPECT_TRUE(streams_.close_epoch(state->index()));
  EXPECT_EQ(streams_.epochs_closed(), 0u);
  EXPECT_EQ(faulty_.call_count(BackendCall::record_event), 0u);
}

TEST_F(StreamTableTest, OneEventAnEpochHoweverManyFrees) {
  StreamState* state = adopt_new();
  for (int i = 0; i < 1000; ++i) streams_.ticket(state->index());
  streams_.close_epochs();
  EXPECT_EQ(faulty_.call_count(BackendCall::record_event), 1u);
  streams_.poll();
  streams_.ticket(state->index());
  streams_.close_epochs();
  EXPECT_EQ(faulty_.call_count(BackendCall::create_event), 1u);  // the first is used again
}

TEST_F(StreamTableTest, AFenceCoversWhatIsUnfinishedNowOnItsStreams) {
  StreamState* a = adopt_new();
  StreamState* b = adopt_new();
  work_on(a->raw());
  work_on(b->raw());
  streams_.ticket(a->index());
  streams_.ticket(b->index());
  StreamState* other = adopt_new();
  work_on(other->raw());
  streams_.ticket(other->index());  // of no concern
  const Fence fence{streams_.make_fence(),
                    Fence::group_of(a->index()) | Fence::group_of(b->index())};
  EXPECT_FALSE(streams_.is_fence_complete(fence));
  streams_.close_epochs();
  device_.complete(a->raw());
  streams_.poll();
  EXPECT_FALSE(streams_.is_fence_complete(fence));
  // What comes after the fence does not hold it up.
  work_on(a->raw());
  streams_.ticket(a->index());
  device_.complete(b->raw());
  streams_.poll();
  EXPECT_TRUE(streams_.is_fence_complete(fence));
}

TEST_F(StreamTableTest, OnlyItsOwnThreadClosesAPerThreadStreamsEpoch) {
  Ticket ticket;
  StreamIndex index = 0;
  std::thread([&] {
    StreamState* state = adopt(per_thread_stream());
    index = state->index();
    work_on(per_thread_stream());
    ticket = streams_.ticket(index);
  }).join();
  EXPECT_FALSE(streams_.close_epoch(index));
  EXPECT_EQ(faulty_.call_count(BackendCall::record_event), 0u);
  // A thread that gets the ended one's id of the system is another thread all the same.
  for (int i = 0; i < 5; ++i) {
    std::thread([&] { EXPECT_FALSE(streams_.close_epoch(index)); }).join();
  }
  streams_.poll();
  EXPECT_FALSE(streams_.is_complete(ticket));
  std::thread([&] {
    StreamState* own = adopt(per_thread_stream());
    EXPECT_NE(own->index(), index);
    streams_.ticket(own->index());
    EXPECT_TRUE(streams_.close_epoch(own->index()));
  }).join();
}

TEST_F(StreamTableTest, AStreamInCaptureKeepsItsEpochOpen) {
  StreamState* state = adopt_new();
  const Ticket ticket = streams_.ticket(state->index());
  device_.begin_capture(state->raw());
  EXPECT_FALSE(streams_.close_epoch(state->index()));
  streams_.poll();
  EXPECT_FALSE(streams_.is_complete(ticket));
  device_.end_capture(state->raw());
  EXPECT_TRUE(streams_.close_epoch(state->index()));
  streams_.poll();
  EXPECT_TRUE(streams_.is_complete(ticket));
}

TEST_F(StreamTableTest, TheLegacyStreamIsLeftAloneWhileAnotherIsCaptured) {
  StreamState* legacy = adopt(nullptr);
  const RawStream captured = device_.create_stream();
  streams_.ticket(legacy->index());
  device_.begin_capture(captured);
  EXPECT_FALSE(streams_.close_epoch(legacy->index()));
  device_.end_capture(captured);
  EXPECT_TRUE(streams_.close_epoch(legacy->index()));
}

TEST_F(StreamTableTest, AFailedRecordKeepsTheEpochOpen) {
  StreamState* state = adopt_new();
  const Ticket ticket = streams_.ticket(state->index());
  for (const BackendCall call : {BackendCall::create_event, BackendCall::record_event,
                                 BackendCall::stream_id, BackendCall::capture_state}) {
    faulty_.fail_nth(call, 1, Error::backend_failure);
    EXPECT_FALSE(streams_.close_epoch(state->index())) << to_string(call);
    streams_.poll();
    EXPECT_FALSE(streams_.is_complete(ticket));
  }
  EXPECT_TRUE(streams_.close_epoch(state->index()));
  faulty_.fail_nth(BackendCall::query_event, 1, Error::backend_failure);
  EXPECT_EQ(streams_.poll(), 0u);
  EXPECT_EQ(streams_.poll(), 1u);
  EXPECT_TRUE(streams_.is_complete(ticket));
}

TEST_F(StreamTableTest, WhatIsFreedWhileAnEpochIsClosedFallsIntoTheNext) {
  StreamState* state = adopt_new();
  const Ticket before = streams_.ticket(state->index());
  auto end = streams_.begin_close(state->index());
  ASSERT_TRUE(end.has_value());
  const Ticket meanwhile = streams_.ticket(state->index());
  streams_.events().record(*end);
  work_on(state->raw());  // by whoever freed; the event does not come after it
  const Ticket after = streams_.ticket(state->index());
  streams_.end_close(*end);
  EXPECT_EQ(streams_.poll(), 1u);
  EXPECT_TRUE(streams_.is_complete(before));
  EXPECT_FALSE(streams_.is_complete(meanwhile));
  EXPECT_FALSE(streams_.is_complete(after));
  EXPECT_TRUE(streams_.close_epoch(state->index()));
  device_.complete_all();
  EXPECT_EQ(streams_.poll(), 1u);
  EXPECT_TRUE(streams_.is_complete(after));
}

TEST_F(StreamTableTest, TheNextEventCoversAnEpochThatHasNone) {
  StreamState* state = adopt_new();
  work_on(state->raw());
  const Ticket first = streams_.ticket(state->index());
  faulty_.fail_nth(BackendCall::record_event, 1, Error::backend_failure);
  EXPECT_FALSE(streams_.close_epoch(state->index()));
  streams_.check_invariants();
  EXPECT_EQ(streams_.epochs_closed(), 0u);
  work_on(state->raw());
  const Ticket second = streams_.ticket(state->index());
  EXPECT_TRUE(streams_.close_epoch(state->index()));
  EXPECT_EQ(streams_.epochs_closed(), 1u);
  EXPECT_TRUE(device_.complete_next(state->raw()));
  EXPECT_EQ(streams_.poll(), 0u);
  EXPECT_FALSE(streams_.is_complete(first));  // safe, if later than it could be
  device_.complete_all();
  EXPECT_EQ(streams_.poll(), 1u);
  EXPECT_TRUE(streams_.is_complete(first));
  EXPECT_TRUE(streams_.is_complete(second));
  EXPECT_FALSE(streams_.has_unfinished());
}

TEST_F(StreamTableTest, AnEpochWithoutAnEventIsClosedAgainAlthoughNothingIsFreed) {
  StreamState* state = adopt_new();
  const Ticket ticket = streams_.ticket(state->index());
  for (int i = 0; i < 100; ++i) {
    faulty_.fail_nth(BackendCall::record_event, 1, Error::backend_failure);
    EXPECT_FALSE(streams_.close_epoch(state->index()));
  }
  EXPECT_TRUE(streams_.close_epoch(state->index()));
  EXPECT_EQ(faulty_.call_count(BackendCall::create_event), 1u);  // what failed is used again
  streams_.poll();
  EXPECT_TRUE(streams_.is_complete(ticket));
  EXPECT_FALSE(streams_.needs_event(state->index()));
}

TEST_F(StreamTableTest, AFenceCoversAnEpochThatHasNoEvent) {
  StreamState* state = adopt_new();
  work_on(state->raw());
  streams_.ticket(state->index());
  const Fence fence{streams_.make_fence(), Fence::group_of(state->index())};
  // More epochs than are told apart, the first of them the one that counts.
  for (std::size_t i = 0; i < 2 * kMaxClosedEpochs; ++i) {
    faulty_.fail_nth(BackendCall::record_event, 1, Error::backend_failure);
    EXPECT_FALSE(streams_.close_epoch(state->index()));
    streams_.ticket(state->index());
    streams_.check_invariants();
    EXPECT_FALSE(streams_.is_fence_complete(fence));
  }
  EXPECT_TRUE(streams_.close_epoch(state->index()));
  EXPECT_EQ(streams_.poll(), 0u);
  EXPECT_FALSE(streams_.is_fence_complete(fence));
  device_.complete_all();
  EXPECT_EQ(streams_.poll(), 1u);
  EXPECT_TRUE(streams_.is_fence_complete(fence));
}

TEST_F(StreamTableTest, AnIndexIsNotUsedAgainWhileItsLastEventIsBeingRecorded) {
  StreamState* state = adopt_new();
  const StreamIndex index = state->index();
  streams_.ticket(index);
  auto end = streams_.release(state);
  ASSERT_TRUE(end.has_value());
  EXPECT_NE(adopt_new()->index(), index);
  streams_.events().record(*end);
  streams_.end_close(*end);
  EXPECT_NE(adopt_new()->index(), index);
  streams_.poll();
  EXPECT_EQ(adopt_new()->index(), index);
}

TEST_F(StreamTableTest, FreesOnAThreadsOwnStreamMakeItsCloseDue) {
  const StreamState* state = adopt(per_thread_stream());
  for (int i = 0; i < 255; ++i) streams_.note_own_free(state->index());
  EXPECT_FALSE(streams_.is_own_close_due(state->index()));
  streams_.note_own_free(state->index());
  EXPECT_TRUE(streams_.is_own_close_due(state->index()));
  streams_.note_own_free(state->index());
  EXPECT_TRUE(streams_.is_own_close_due(state->index()));  // until it was tried
  EXPECT_FALSE(streams_.begin_close(state->index()).has_value());
  EXPECT_FALSE(streams_.is_own_close_due(state->index()));
}

TEST_F(StreamTableTest, AReleasedReferenceIsNoticed) {
  StreamState* state = adopt_new();
  streams_.end_stream(state);
  EXPECT_FALSE(streams_.is_known(state));
  EXPECT_TRUE(state->is_released());
  EXPECT_EQ(streams_.stream_count(), 0u);
  for (int i = 0; i < 100; ++i) streams_.end_stream(adopt_new());
  EXPECT_FALSE(streams_.is_known(state));
}

TEST_F(StreamTableTest, AnIndexIsUsedAgainWhenAllIsComplete) {
  StreamState* first = adopt_new();
  const StreamIndex index = first->index();
  const RawStream raw = first->raw();
  work_on(raw);
  const Ticket ticket = streams_.ticket(index);
  streams_.end_stream(first);
  device_.destroy_stream(raw);
  EXPECT_NE(adopt_new()->index(), index);
  streams_.poll();
  EXPECT_NE(adopt_new()->index(), index);
  device_.complete_all();
  streams_.poll();
  EXPECT_TRUE(streams_.is_complete(ticket));
  StreamState* again = adopt_new();
  EXPECT_EQ(again->index(), index);
  EXPECT_FALSE(streams_.is_complete(streams_.ticket(index)));  // its epochs go on
}

TEST_F(StreamTableTest, AHandleThatCameBackIsAnotherStream) {
  StreamState* former = adopt_new();
  const RawStream raw = former->raw();
  work_on(raw);
  const Ticket ticket = streams_.ticket(former->index());
  device_.destroy_stream(raw);  // unannounced
  ASSERT_EQ(device_.create_stream(), raw);
  // Its idle successor's event would say that the former's work is done.
  EXPECT_FALSE(streams_.close_epoch(former->index()));
  const std::uint64_t id = device_.stream_id(raw).value();
  EXPECT_EQ(streams_.disown(raw, former->id()), nullptr);
  EXPECT_EQ(streams_.disown(raw, id), former);
  EXPECT_EQ(streams_.mismatches(), 1u);
  streams_.end_stream(former);
  StreamState* next = streams_.adopt(raw, id);
  EXPECT_NE(next->index(), ticket.stream);
  streams_.close_epochs();
  streams_.poll();
  EXPECT_FALSE(streams_.is_complete(ticket));
}

TEST_F(StreamTableTest, EpochsCloseAlthoughAllEventsAreInFlight) {
  StreamState* state = adopt_new();
  const StreamIndex index = state->index();
  std::vector<Ticket> tickets;
  for (int i = 0; i < 200; ++i) {
    work_on(state->raw());
    tickets.push_back(streams_.ticket(index));
    EXPECT_TRUE(streams_.close_epoch(index));
    streams_.check_invariants();
  }
  EXPECT_LE(faulty_.call_count(BackendCall::create_event), 64u);
  streams_.end_stream(state);  // nothing may be left that no event covers
  for (int i = 0; i < 200; ++i) {
    const auto at = static_cast<std::size_t>(i);
    EXPECT_FALSE(streams_.is_complete(tickets[at]));
    EXPECT_TRUE(device_.complete_next(state->raw()));
    streams_.poll();
  }
  for (const Ticket& ticket : tickets) EXPECT_TRUE(streams_.is_complete(ticket));
  EXPECT_FALSE(streams_.has_unfinished());
}

TEST_F(StreamTableTest, SynchronizeWaitsForTimedWork) {
  StreamState* state = adopt_new();
  SimulatedWork work;
  work.duration_ns = 1'000'000;
  ASSERT_TRUE(device_.launch(state->raw(), work).ok());
  const Ticket ticket = streams_.ticket(state->index());
  streams_.synchronize();
  EXPECT_TRUE(streams_.is_complete(ticket));
  EXPECT_TRUE(device_.is_idle(state->raw()));
}

TEST_F(StreamTableTest, ATableGivesItsEventsBack) {
  {
    Epochs table(device_);
    const RawStream raw = device_.create_stream();
    const StreamState* state = table.adopt(raw, device_.stream_id(raw).value());
    for (int i = 0; i < 3; ++i) {
      work_on(raw);
      table.ticket(state->index());
      table.close_epochs();
    }
    EXPECT_EQ(device_.object_count(), 3u);
  }
  EXPECT_EQ(device_.object_count(), 0u);
}

class TicketSetTest : public StreamTableTest {
 protected:
  Ticket busy() {
    const StreamState* state = adopt_new();
    work_on(state->raw());
    return streams_.ticket(state->index());
  }
  void complete(Ticket ticket) {
    streams_.close_epochs();
    device_.complete(streams_.find(streams_.id_of(ticket.stream))->raw());
    streams_.poll();
  }
};

TEST_F(TicketSetTest, SaysWhosItIs) {
  TicketSet tickets;
  EXPECT_EQ(tickets.holder(), kAnybody);
  const Ticket a = busy();
  const Ticket b = busy();
  tickets.add(a, streams_);
  EXPECT_EQ(tickets.holder(), a.stream);
  tickets.add(b, streams_);
  EXPECT_EQ(tickets.holder(), kNobody);
  complete(a);
  EXPECT_EQ(tickets.holder(), kNobody);  // as of the last prune
  tickets.prune(streams_);
  EXPECT_EQ(tickets.holder(), b.stream);
  complete(b);
  tickets.prune(streams_);
  EXPECT_EQ(tickets.holder(), kAnybody);
  EXPECT_TRUE(tickets.empty());
}

TEST_F(TicketSetTest, KeepsTheLaterEpochOfAStream) {
  const Ticket early = busy();
  streams_.close_epochs();
  const Ticket late = streams_.ticket(early.stream);
  for (const bool late_first : {false, true}) {
    TicketSet tickets;
    tickets.add(late_first ? late : early, streams_);
    tickets.add(late_first ? early : late, streams_);
    EXPECT_EQ(tickets.count(), 1u);
    EXPECT_EQ(tickets[0].epoch, late.epoch);
  }
}

TEST_F(TicketSetTest, CopiesAreWhole) {
  // Sets of 0 to 4 tickets and one with a fence, each copied over each.
  std::vector<TicketSet> sets(6);
  std::vector<Ticket> all;
  for (std::size_t size = 1; size < sets.size(); ++size) {
    for (std::size_t i = 0; i < size; ++i) {
      if (i == all.size()) all.push_back(busy());
      sets[size].add(all[i], streams_);
    }
  }
  for (const TicketSet& from : sets) {
    for (TicketSet to : sets) {
      to = from;
      ASSERT_EQ(to.count(), from.count());
      for (std::size_t i = 0; i < to.count(); ++i) {
        EXPECT_EQ(to[i].stream, from[i].stream);
        EXPECT_EQ(to[i].epoch, from[i].epoch);
      }
      EXPECT_EQ(to.has_fence(), from.has_fence());
      EXPECT_EQ(to.holder(), from.holder());
      EXPECT_EQ(to.empty(), from.empty());
    }
  }
  EXPECT_TRUE(sets[5].has_fence());
  EXPECT_EQ(sets[5].count(), 0u);
}

TEST_F(TicketSetTest, TheLargestIndexAndEpochFit) {
  TicketSet tickets;
  const Ticket last{StreamTable::kMaxStreams - 1, (std::uint64_t{1} << 47) - 1};
  tickets.add(last, streams_);
  EXPECT_EQ(tickets.holder(), last.stream);
  EXPECT_EQ(tickets[0].epoch, last.epoch);
  EXPECT_TRUE(tickets.is_at_most_of(last.stream));
  EXPECT_FALSE(tickets.is_at_most_of(last.stream - 1));
  // Of a stream whose index differs in one bit alone.
  const Ticket first = busy();
  tickets.add(first, streams_);
  EXPECT_EQ(tickets.count(), 2u);
  EXPECT_EQ(tickets[0].stream, last.stream);
  EXPECT_EQ(tickets[1].epoch, first.epoch);
  EXPECT_FALSE(tickets.is_at_most_of(last.stream));
  TicketSet none;
  EXPECT_TRUE(none.is_at_most_of(3));
}

TEST_F(TicketSetTest, AFifthStreamMakesAFenceThatAllMustPass) {
  TicketSet tickets;
  std::vector<Ticket> all;
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(tickets.has_fence(), false);
    all.push_back(busy());
    tickets.add(all.back(), streams_);
  }
  EXPECT_TRUE(tickets.has_fence());
  for (const Ticket& ticket : all) {
    tickets.prune(streams_);
    EXPECT_EQ(tickets.holder(), kNobody);
    complete(ticket);
  }
  tickets.prune(streams_);
  EXPECT_TRUE(tickets.empty());
}

TEST_F(TicketSetTest, CompleteTicketsMakeRoomBeforeAFence) {
  TicketSet tickets;
  const Ticket done = busy();
  tickets.add(done, streams_);
  for (int i = 0; i < 3; ++i) tickets.add(busy(), streams_);
  complete(done);
  tickets.add(busy(), streams_);
  EXPECT_FALSE(tickets.has_fence());
  EXPECT_EQ(tickets.count(), 4u);
}

TEST_F(TicketSetTest, JoinedSetsForgetNothing) {
  TicketSet left;
  TicketSet right;
  std::vector<Ticket> all;
  for (int i = 0; i < 3; ++i) {
    all.push_back(busy());
    left.add(all.back(), streams_);
    all.push_back(busy());
    right.add(all.back(), streams_);
  }
  left.add(right, streams_);
  EXPECT_TRUE(left.has_fence());
  TicketSet third;
  third.add(left, streams_);
  EXPECT_TRUE(third.has_fence());
  for (const Ticket& ticket : all) {
    third.prune(streams_);
    EXPECT_FALSE(third.empty());
    complete(ticket);
  }
  third.prune(streams_);
  EXPECT_TRUE(third.empty());
}

}  // namespace
}  // namespace gpupool::internal
