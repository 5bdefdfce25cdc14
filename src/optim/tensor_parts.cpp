#include "tensor_parts.h"

#include "qft/comm/exchange.h"
#include "qft/core/error.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>

namespace qft::optim {
namespace {

using Words = std::vector<std::int64_t>;

void write(const TensorPart& part, const Shape& shape, Words& words) {
  words.insert(words.end(), {part.begin, part.end, std::ssize(part.boxes), std::ssize(shape)});
  words.insert(words.end(), shape.begin(), shape.end());
  for (const Box& box : part.boxes)
    for (const Shape* s : {&box.start, &box.extent}) words.insert(words.end(), s->begin(), s->end());
}

/// Reads a part from the front of `words`, and removes it there.
TensorPart read(std::span<const std::int64_t>& words, const Shape& shape) {
  const auto next = [&] {
    QFT_ASSERT(!words.empty(), "tensor ranks have other parameters: {} is missing there", Box::whole(shape).describe());
    const std::int64_t word = words.front();
    words = words.subspan(1);
    return word;
  };
  const auto next_shape = [&](std::size_t dimensions) {
    Shape s(dimensions);
    for (std::int64_t& extent : s) extent = next();
    return s;
  };
  TensorPart part;
  part.begin = next();
  part.end = next();
  part.boxes.resize(static_cast<std::size_t>(next()));
  const Shape theirs = next_shape(static_cast<std::size_t>(next()));
  QFT_ASSERT(theirs == shape, "tensor ranks have other parameters: a tensor {} here is {} there", Box::whole(shape).describe(),
             Box::whole(theirs).describe());
  for (Box& box : part.boxes) {
    box.start = next_shape(shape.size());
    box.extent = next_shape(shape.size());
  }
  return part;
}

/// Returns every rank's words.
std::vector<Words> gather(const Words& mine, comm::Communicator& ranks) {
  const std::string bytes(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(mine[0]));
  std::vector<Words> all;
  for (const std::string& theirs : comm::all_gather_strings(ranks, bytes)) {
    Words& words = all.emplace_back(theirs.size() / sizeof(mine[0]));
    std::memcpy(words.data(), theirs.data(), theirs.size());
  }
  return all;
}

/// Sets TensorPart::first, and requires that the first holders' boxes are the whole tensor.
void find_first_holders(std::vector<TensorPart>& parts, const Shape& shape) {
  std::vector<Box> boxes;
  for (std::size_t t = 0; t < parts.size(); ++t) {
    const auto mine = parts.begin() + static_cast<std::ptrdiff_t>(t);
    mine->first = std::none_of(parts.begin(), mine, [&](const TensorPart& p) { return p.boxes == mine->boxes; });
    QFT_ASSERT(static_cast<std::int64_t>(elements(mine->boxes)) == mine->numel(), "{} elements in the buffer, {} in the boxes",
               mine->numel(), elements(mine->boxes));
    if (mine->first) boxes.insert(boxes.end(), mine->boxes.begin(), mine->boxes.end());
  }
  const Box whole = Box::whole(shape);
  for (std::size_t a = 0; a < boxes.size(); ++a) {
    QFT_ASSERT(boxes[a].inside(shape), "a tensor rank's box {} lies outside its tensor {}", boxes[a].describe(),
               whole.describe());
    for (std::size_t b = 0; b < a; ++b)
      QFT_ASSERT(disjoint(boxes[a], boxes[b]), "tensor ranks hold boxes of {} that overlap: {} and {}", whole.describe(),
                 boxes[b].describe(), boxes[a].describe());
  }
  QFT_ASSERT(elements(boxes) == whole.elements(), "tensor ranks leave out elements of a tensor {}: they hold {} of {}",
             whole.describe(), elements(boxes), whole.elements());
}

}  // namespace

std::vector<std::vector<TensorPart>> parts_of_all(const std::vector<TensorPart>& mine, const std::vector<Shape>& shapes,
                                                  comm::Communicator& ranks, int tensor_ranks) {
  Words words;
  for (std::size_t i = 0; i < mine.size(); ++i) write(mine[i], shapes[i], words);
  const std::vector<Words> all = gather(words, ranks);
  std::vector<std::vector<TensorPart>> parts(mine.size());
  for (int t = 0; t < tensor_ranks; ++t) {
    std::span<const std::int64_t> theirs = all[static_cast<std::size_t>(t)];
    for (std::size_t i = 0; i < mine.size(); ++i) parts[i].push_back(read(theirs, shapes[i]));
    QFT_ASSERT(theirs.empty(), "tensor ranks have other parameters: rank {} has more than the {} here", t, mine.size());
  }
  for (std::size_t i = 0; i < mine.size(); ++i) find_first_holders(parts[i], shapes[i]);
  return parts;
}

}  // namespace qft::optim
