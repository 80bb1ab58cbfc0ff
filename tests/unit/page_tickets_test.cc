// Who may still be using a page, against a model that keeps every ticket of every page.
#include "runs/page_tickets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "gpupool/simulated_backend.h"
#include "tests/support/random.h"
#include "tests/unit/epochs.h"

namespace gpupool::internal {
namespace {

constexpr std::uint64_t kTicketPages = 40;
constexpr std::uint64_t kGroup = PageTickets::kGroupPages;
constexpr StreamIndex kStreams = 7;

class PageTicketsTest : public testing::Test {
 protected:
  PageTicketsTest() {
    EXPECT_TRUE(tickets_.reserve(kTicketPages));
    for (StreamIndex i = 0; i < kStreams; ++i) {
      raw_.push_back(device_.create_stream());
      streams_.adopt(raw_[i], device_.stream_id(raw_[i]).value());
    }
  }
  ~PageTicketsTest() override { device_.complete_all(); }

  TicketSet busy(std::initializer_list<StreamIndex> streams) {
    TicketSet tickets;
    for (const StreamIndex stream : streams) tickets.add(ticket(stream), streams_);
    return tickets;
  }
  /// Of new work, in an epoch of its own.
  Ticket ticket(StreamIndex stream) {
    SimulatedWork work;
    work.until_completed = true;
    EXPECT_TRUE(device_.launch(raw_[stream], work).ok());
    const Ticket ticket = streams_.ticket(stream);
    streams_.close_epoch(stream);
    return ticket;
  }
  void complete(StreamIndex stream) {
    device_.complete(raw_[stream]);
    streams_.poll();
  }
  void add(std::uint64_t first, std::uint64_t pages, const TicketSet& tickets) {
    tickets_.add(first * kUnitsPerPage, (first + pages) * kUnitsPerPage, tickets, streams_);
  }
  std::set<StreamIndex> of(std::uint64_t first, std::uint64_t pages = 1) {
    const TicketSet sum = tickets_.of({first, pages}, streams_);
    std::set<StreamIndex> streams;
    EXPECT_FALSE(sum.has_fence());
    for (std::size_t i = 0; i < sum.count(); ++i) streams.insert(sum[i].stream);
    return streams;
  }
  using Set = std::set<StreamIndex>;

  SimulatedBackend device_;
  Epochs streams_{device_};
  std::vector<RawStream> raw_;
  PageTickets tickets_;
};

TEST_F(PageTicketsTest, APageThatIsTouchedHasThem) {
  tickets_.add(kUnitsPerPage - 1, 2 * kUnitsPerPage + 1, busy({2}), streams_);
  EXPECT_EQ(of(0), (Set{2}));
  EXPECT_EQ(of(1), (Set{2}));
  EXPECT_EQ(of(2), (Set{2}));
  EXPECT_EQ(of(3), Set());
  EXPECT_EQ(of(3, 2), Set());
  EXPECT_EQ(of(0, 4), (Set{2}));
  complete(2);
  EXPECT_EQ(of(0, 4), Set());
}

TEST_F(PageTicketsTest, GroupsThatAreCoveredHaveThemInsteadOfTheirPages) {
  add(kGroup - 1, 2 * kGroup, busy({1}));  // a page, a group, all but one page of the next
  EXPECT_EQ(of(kGroup - 2), Set());
  EXPECT_EQ(of(3 * kGroup - 1), Set());
  for (std::uint64_t page = kGroup - 1; page < 3 * kGroup - 1; ++page)
    EXPECT_EQ(of(page), (Set{1}));
  // What a group had is its pages' when one of them is another.
  tickets_.reset({kGroup - 1, kGroup + 2}, streams_);
  EXPECT_EQ(of(kGroup - 1), Set());
  EXPECT_EQ(of(kGroup), Set());
  EXPECT_EQ(of(2 * kGroup), Set());
  EXPECT_EQ(of(2 * kGroup + 1), (Set{1}));
  complete(1);
  EXPECT_EQ(of(0, kTicketPages), Set());
}

TEST_F(PageTicketsTest, WhereAPageIsAnotherItsGroupLeavesTheRestWhatItHad) {
  add(0, 2 * kGroup, busy({2}));
  tickets_.reset({3, 1}, streams_);
  EXPECT_EQ(of(3), Set());
  for (std::uint64_t page = 0; page < 2 * kGroup; ++page) {
    if (page != 3) {
      EXPECT_EQ(of(page), (Set{2})) << page;
    }
  }
  EXPECT_EQ(tickets_.busy(0, 0x5555, streams_), 0x5555u);
  EXPECT_EQ(tickets_.busy(0, ~std::uint64_t{0}, streams_), 0xfff7u);
  add(2 * kGroup + 3, 1, busy({1, 3}));
  EXPECT_EQ(tickets_.busy(0, 0xfff0000, streams_), std::uint64_t{1} << (2 * kGroup + 3));
  complete(1);
  complete(2);
  EXPECT_EQ(tickets_.busy(0, ~std::uint64_t{0}, streams_), std::uint64_t{1} << (2 * kGroup + 3));
}

TEST_F(PageTicketsTest, ALaterTicketOfTheStreamTakesThePlaceOfTheEarlier) {
  add(3, 1, busy({0}));
  ASSERT_TRUE(device_.complete_next(raw_[0]));
  add(3, 1, busy({0}));
  streams_.poll();
  EXPECT_EQ(of(3), (Set{0}));
  // An earlier one that comes late does not.
  const TicketSet early = busy({1});
  add(5, 1, busy({1}));
  add(5, 1, early);
  ASSERT_TRUE(device_.complete_next(raw_[1]));
  streams_.poll();
  EXPECT_EQ(of(5), (Set{1}));
}

TEST_F(PageTicketsTest, SeveralStreamsAreInTheOtherTable) {
  add(4, 1, busy({0}));
  add(4, 1, busy({1}));
  add(4, 1, busy({2, 3}));
  EXPECT_EQ(of(4), (Set{0, 1, 2, 3}));
  complete(1);
  EXPECT_EQ(of(4), (Set{0, 2, 3}));
  complete(0);
  complete(2);
  complete(3);
  EXPECT_EQ(of(4), Set());
  add(4, 1, busy({5}));
  EXPECT_EQ(of(4), (Set{5}));
  tickets_.reset({4, 1}, streams_);
  EXPECT_EQ(of(4), Set());
  add(4, 1, busy({6}));
  EXPECT_EQ(of(4), (Set{6}));
}

TEST_F(PageTicketsTest, OneWhoseWorkIsCompleteMakesPlaceForAnother) {
  add(0, 1, busy({0}));
  complete(0);
  add(0, 1, busy({1}));
  EXPECT_EQ(of(0), (Set{1}));
  complete(1);
  EXPECT_EQ(of(0), Set());
}

TEST_F(PageTicketsTest, MoreThanASetHoldsAreAFence) {
  add(7, 1, busy({0, 1, 2, 3}));
  add(7, 1, busy({4}));
  EXPECT_TRUE(tickets_.of({7, 1}, streams_).has_fence());
  EXPECT_EQ(of(6), Set());
  for (StreamIndex i = 0; i < 4; ++i) complete(i);
  EXPECT_FALSE(tickets_.of({7, 1}, streams_).empty());
  complete(4);
  EXPECT_TRUE(tickets_.of({7, 1}, streams_).empty());
}

using Latest = std::map<StreamIndex, std::uint64_t>;  // stream -> latest epoch

bool covers(const Latest& more, const Latest& less) {
  return std::all_of(less.begin(), less.end(), [&](const auto& it) {
    const auto found = more.find(it.first);
    return found != more.end() && found->second >= it.second;
  });
}

// What is unfinished of a page is there, whatever comes and goes around it; and nothing is there
// that no page of its group ever had.
TEST_F(PageTicketsTest, HaveAtLeastTheirPagesAndAtMostTheirGroups) {
  test::Random random(7);
  std::array<Latest, kTicketPages> pages;
  std::array<Latest, kTicketPages / kGroup> groups;
  const auto merge = [](Latest& into, Ticket ticket) {
    into[ticket.stream] = std::max(into[ticket.stream], ticket.epoch);
  };
  const auto merge_unfinished = [&](Latest& into, const Latest& from) {
    for (const auto& [stream, epoch] : from) {
      if (!streams_.is_complete({stream, epoch})) merge(into, {stream, epoch});
    }
  };
  std::uint64_t unfinished = 0;
  std::uint64_t exact = 0;
  for (int step = 0; step < 6000; ++step) {
    switch (random.below(4)) {
      case 0: complete(static_cast<StreamIndex>(random.below(kStreams))); break;
      case 1: {
        const std::uint64_t first = random.below(kTicketPages);
        const std::uint64_t end = std::min(kTicketPages, first + random.between(1, 3));
        tickets_.reset({first, end - first}, streams_);
        for (std::uint64_t page = first; page < end; ++page) pages[page].clear();
        break;
      }
      default: {
        TicketSet set;
        std::vector<Ticket> added;
        // Of at most four streams in sum, so that no set becomes a fence.
        for (std::uint64_t i = random.below(4) == 0 ? 2 : 1; i > 0; --i) {
          added.push_back(ticket(static_cast<StreamIndex>(random.below(4))));
          set.add(added.back(), streams_);
        }
        std::uint64_t start = random.below(kTicketPages * kUnitsPerPage);
        std::uint64_t end = start + 1 + random.below(random.one_in(2) ? 600 : 20 * kUnitsPerPage);
        if (random.one_in(3)) start = start / kUnitsPerPage * kUnitsPerPage;
        if (random.one_in(6)) start = start / (kGroup * kUnitsPerPage) * kGroup * kUnitsPerPage;
        if (random.one_in(6)) end = start + kGroup * kUnitsPerPage;
        end = std::min(end, kTicketPages * kUnitsPerPage);
        tickets_.add(start, end, set, streams_);
        for (std::uint64_t page = start / kUnitsPerPage; page * kUnitsPerPage < end; ++page) {
          for (const Ticket& it : added) {
            merge(pages[page], it);
            merge(groups[page / kGroup], it);
          }
        }
      }
    }
    const std::uint64_t first = random.below(kTicketPages);
    const std::uint64_t count = std::min(kTicketPages - first, random.between(1, 12));
    Latest least;
    Latest most;
    for (std::uint64_t page = first; page < first + count; ++page) {
      merge_unfinished(least, pages[page]);
      merge_unfinished(most, groups[page / kGroup]);
    }
    const TicketSet sum = tickets_.of({first, count}, streams_);
    ASSERT_FALSE(sum.has_fence());
    Latest found;
    for (std::size_t i = 0; i < sum.count(); ++i) merge(found, sum[i]);
    ASSERT_TRUE(covers(found, least)) << "step " << step;
    ASSERT_TRUE(covers(most, found)) << "step " << step;
    unfinished += least.size();
    exact += found == least ? 1 : 0;
  }
  EXPECT_GT(unfinished, 3000u);
  EXPECT_GT(exact, 3000u);
}

}  // namespace
}  // namespace gpupool::internal
