#include "hdf5_calls.h"

#include <array>
#include <utility>

namespace qft::io::h5 {
namespace {

std::recursive_mutex& mutex() {
  static std::recursive_mutex instance;
  return instance;
}

herr_t collect(unsigned, const H5E_error2_t* error, void* out) {
  auto& text = *static_cast<std::string*>(out);
  if (!text.empty()) text += "; ";
  text += error->func_name ? error->func_name : "?";
  text += ": ";
  text += error->desc ? error->desc : "?";
  return 0;
}

}  // namespace

Lock::Lock() : guard_(mutex()) {
  static const bool quiet = H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr) >= 0;
  static_cast<void>(quiet);
}

std::string take_error_stack() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, &collect, &text);
  H5Eclear2(H5E_DEFAULT);
  return text.empty() ? "HDF5 gives no reason" : text;
}

Handle own(hid_t id, Handle::Close close, const char* what, const std::string& label) {
  return Handle(check(id, what, label), close);
}

Handle::Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}

Handle& Handle::operator=(Handle&& other) noexcept {
  std::swap(id_, other.id_);
  std::swap(close_, other.close_);
  return *this;
}

bool Handle::reset() noexcept {
  const std::int64_t id = std::exchange(id_, -1);
  if (id < 0) return true;
  const Lock lock;
  return close_(id) >= 0;
}

// HDF5's types are run-time values, so the table is a static in a function.
struct TypeRow {
  std::size_t bytes;
  std::string_view name;
  hid_t file, memory;
};

static const TypeRow& row(Type type) {
  static const std::array<TypeRow, 10> table = [] {
    const Lock lock;
    return std::array<TypeRow, 10>{{{1, "int8", H5T_STD_I8LE, H5T_NATIVE_INT8},
                                    {2, "int16", H5T_STD_I16LE, H5T_NATIVE_INT16},
                                    {4, "int32", H5T_STD_I32LE, H5T_NATIVE_INT32},
                                    {8, "int64", H5T_STD_I64LE, H5T_NATIVE_INT64},
                                    {1, "uint8", H5T_STD_U8LE, H5T_NATIVE_UINT8},
                                    {2, "uint16", H5T_STD_U16LE, H5T_NATIVE_UINT16},
                                    {4, "uint32", H5T_STD_U32LE, H5T_NATIVE_UINT32},
                                    {8, "uint64", H5T_STD_U64LE, H5T_NATIVE_UINT64},
                                    {4, "float32", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT},
                                    {8, "float64", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE}}};
  }();
  return table[static_cast<std::size_t>(type)];
}

std::size_t size_of(Type type) {
  return row(type).bytes;
}
std::string_view name_of(Type type) {
  return row(type).name;
}
hid_t file_type(Type type) {
  return row(type).file;
}
hid_t memory_type(Type type) {
  return row(type).memory;
}

}  // namespace qft::io::h5
