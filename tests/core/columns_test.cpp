#include "qft/core/columns.h"

#include <gtest/gtest.h>

namespace qft {
namespace {

TEST(Columns, SelectTakesValuesAndLists) {
  const Column numbers{IndexSpace::label, {5, 6, 7, 8}};
  const std::vector<std::size_t> taken = {3, 0};
  EXPECT_EQ(numbers.select(taken), (Column{IndexSpace::label, {8, 5}}));

  Column lists{IndexSpace::item};
  lists.append_list(std::vector<double>{1, 2});
  lists.append_list({});
  lists.append_list(std::vector<double>{3});
  ASSERT_EQ(lists.size(), 3U);
  EXPECT_TRUE(lists.entry(1).empty()) << "an empty list is an entry too";
  const Column part = lists.select(std::vector<std::size_t>{2, 1});
  EXPECT_EQ(part, (Column{IndexSpace::item, {3}, {0, 1, 1}}));
  EXPECT_TRUE(lists.select({}).has_lists()) << "no entries, but still lists";
}

}  // namespace
}  // namespace qft
