#include "pickle.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>

namespace qft::io {
namespace {

using Kind = PickleValue::Kind;
constexpr std::string_view kOrderedDict = "collections.OrderedDict";
constexpr std::size_t kMaxValues = std::size_t{1} << 22;  // a tensor has about 16
constexpr PickleRef kMark = ~PickleRef{0};

class Reader {
 public:
  Reader(std::string_view text, std::span<const std::string_view> globals) : text_(text), globals_(globals) {}

  Pickle run() {
    while (step()) {
    }
    require(stack_.size() == 1 && stack_[0] != kMark, "its pickle is damaged: it leaves {} values instead of 1", stack_.size());
    result_.root = stack_[0];
    return std::move(result_);
  }

 private:
  // Executes one opcode; returns false after the last.
  bool step() {
    const std::size_t at = at_;
    const auto op = static_cast<unsigned char>(take(1)[0]);
    if (op == '.') return false;
    if (!scalar(op) && !container(op) && !memo(op) && !object(op))
      throw ForeignPickle(fmt::format("its pickle has the opcode 0x{:02x} at byte {}, which tensors do not need", op, at));
    return true;
  }

  bool scalar(unsigned char op) {
    switch (op) {
      case 0x80:  // PROTO
        require(number<std::uint8_t>() <= 5, "its pickle has a protocol above 5: save it with pickle_protocol=2");
        return true;
      case 0x95:  // FRAME: the length is redundant
        take(8);
        return true;
      case 'N':
        return push({});
      case 0x88:
      case 0x89:
        return push({Kind::boolean, op == 0x88, {}, {}});
      case 'J':
        return push_integer(number<std::int32_t>());
      case 'K':
        return push_integer(number<std::uint8_t>());
      case 'M':
        return push_integer(number<std::uint16_t>());
      case 0x8a:  // LONG1
        return push_integer(long_integer(number<std::uint8_t>()));
      case 'G':  // BINFLOAT: no tensor depends on the value
        take(8);
        return push({Kind::real, 0, {}, {}});
      case 'X':
        return push_text(number<std::uint32_t>());
      case 0x8c:  // SHORT_BINUNICODE
      case 'U':   // SHORT_BINSTRING, of Python 2
        return push_text(number<std::uint8_t>());
      case 0x8d:
        return push_text(number<std::uint64_t>());
      default:
        return false;
    }
  }

  bool container(unsigned char op) {
    switch (op) {
      case '(':
        stack_.push_back(kMark);
        return true;
      case ')':
        return push({Kind::tuple, 0, {}, {}});
      case ']':
        return push({Kind::list, 0, {}, {}});
      case '}':
        return push({Kind::dict, 0, {}, {}});
      case 't':
        return push({Kind::tuple, 0, {}, pop_to_mark()});
      case 0x85:
      case 0x86:
      case 0x87:
        return push({Kind::tuple, 0, {}, pop(op - 0x84U)});
      case 's':
        return extend(Kind::dict, pop(2));
      case 'u':
        return extend(Kind::dict, pop_to_mark());
      case 'a':
        return extend(Kind::list, pop(1));
      case 'e':
        return extend(Kind::list, pop_to_mark());
      default:
        return false;
    }
  }

  bool memo(unsigned char op) {
    switch (op) {
      case 'q':
        return remember(number<std::uint8_t>());
      case 'r':
        return remember(number<std::uint32_t>());
      case 0x94:  // MEMOIZE
        return remember(static_cast<std::uint32_t>(memo_.size()));
      case 'h':
        return recall(number<std::uint8_t>());
      case 'j':
        return recall(number<std::uint32_t>());
      default:
        return false;
    }
  }

  bool object(unsigned char op) {
    switch (op) {
      case 'c': {
        const std::string_view module = line(), name = line();
        return push_global(fmt::format("{}.{}", module, name));
      }
      case 0x93: {  // STACK_GLOBAL
        const auto parts = pop(2);
        const PickleValue &module = of(parts[0]), &name = of(parts[1]);
        require(module.kind == Kind::text && name.kind == Kind::text, "its pickle is damaged: it imports an unnamed object");
        return push_global(fmt::format("{}.{}", module.text, name.text));
      }
      case 'Q':
        return push({Kind::persistent, 0, {}, pop(1)});
      case 'R':
        return reduce();
      case 'b': {  // BUILD: an OrderedDict's attributes, such as the _metadata of a state dict
        const PickleRef target = pop(2)[0];
        require(of(target).kind == Kind::dict, "its pickle sets the state of an object that is not a dict");
        stack_.push_back(target);
        return true;
      }
      default:
        return false;
    }
  }

  bool reduce() {
    auto parts = pop(2);
    const PickleValue &callee = of(parts[0]), &arguments = of(parts[1]);
    require(callee.kind == Kind::global && arguments.kind == Kind::tuple, "its pickle is damaged: it calls a non-function");
    if (callee.text != kOrderedDict) return push({Kind::call, 0, {}, std::move(parts)});
    require(arguments.items.empty(), "its pickle makes an OrderedDict from {} arguments", arguments.items.size());
    return push({Kind::dict, 0, {}, {}});
  }

  bool push_global(std::string name) {
    if (name != kOrderedDict && std::find(globals_.begin(), globals_.end(), name) == globals_.end())
      throw ForeignPickle(fmt::format("its pickle asks for '{}'", name.substr(0, 200)));
    return push({Kind::global, 0, std::move(name), {}});
  }

  bool push(PickleValue value) {
    require(result_.values.size() < kMaxValues, "its pickle has more than {} values", kMaxValues);
    result_.values.push_back(std::move(value));
    stack_.push_back(static_cast<PickleRef>(result_.values.size() - 1));
    return true;
  }
  bool push_integer(std::int64_t value) { return push({Kind::integer, value, {}, {}}); }
  bool push_text(std::uint64_t bytes) { return push({Kind::text, 0, std::string(take(bytes)), {}}); }

  bool extend(Kind kind, const std::vector<PickleRef>& items) {
    require(!stack_.empty() && stack_.back() != kMark && of(stack_.back()).kind == kind,
            "its pickle is damaged: it adds items to something other than a {}", kind == Kind::dict ? "dict" : "list");
    require(kind == Kind::list || items.size() % 2 == 0, "its pickle is damaged: it has a key without a value");
    auto& target = result_.values[stack_.back()].items;
    target.insert(target.end(), items.begin(), items.end());
    return true;
  }

  bool remember(std::uint32_t key) {
    require(!stack_.empty() && stack_.back() != kMark, "its pickle is damaged: it memoizes a missing value");
    memo_[key] = stack_.back();
    return true;
  }
  bool recall(std::uint32_t key) {
    const auto found = memo_.find(key);
    require(found != memo_.end(), "its pickle is damaged: it recalls an unknown memo entry");
    stack_.push_back(found->second);
    return true;
  }

  std::vector<PickleRef> pop(std::size_t count) {
    require(stack_.size() >= count, "its pickle is damaged: it takes a value from an empty stack");
    std::vector<PickleRef> taken(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    require(std::find(taken.begin(), taken.end(), kMark) == taken.end(), "its pickle is damaged: it takes a mark as a value");
    stack_.resize(stack_.size() - count);
    return taken;
  }
  std::vector<PickleRef> pop_to_mark() {
    const auto mark = std::find(stack_.rbegin(), stack_.rend(), kMark);
    require(mark != stack_.rend(), "its pickle is damaged: it lacks a mark");
    auto taken = pop(static_cast<std::size_t>(mark - stack_.rbegin()));
    stack_.pop_back();
    return taken;
  }
  const PickleValue& of(PickleRef ref) const { return result_.values[ref]; }

  std::string_view take(std::uint64_t bytes) {
    require(bytes <= text_.size() - at_, "its pickle is truncated at byte {}", text_.size());
    const std::string_view part = text_.substr(at_, bytes);
    at_ += bytes;
    return part;
  }
  std::string_view line() {
    const std::size_t end = text_.find('\n', at_);
    require(end != std::string_view::npos, "its pickle is truncated at byte {}", text_.size());
    const std::string_view part = take(end - at_);
    take(1);
    return part;
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  // Reads a little-endian integer in two's complement.
  std::int64_t long_integer(std::size_t bytes) {
    require(bytes <= 8, "its pickle has an integer of {} bytes", bytes);
    const std::string_view part = take(bytes);
    std::uint64_t value = bytes > 0 && (part.back() & 0x80) != 0 ? ~std::uint64_t{0} : 0;
    std::memcpy(&value, part.data(), bytes);
    return static_cast<std::int64_t>(value);
  }

  std::string_view text_;
  std::span<const std::string_view> globals_;
  std::size_t at_ = 0;
  Pickle result_;
  std::vector<PickleRef> stack_;
  std::unordered_map<std::uint32_t, PickleRef> memo_;
};

}  // namespace

Pickle read_pickle(std::string_view text, std::span<const std::string_view> globals) {
  return Reader(text, globals).run();
}

}  // namespace qft::io
