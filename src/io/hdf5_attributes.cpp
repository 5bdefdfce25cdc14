#include <algorithm>
#include <cstring>

#include "hdf5_calls.h"

namespace qft::io::h5 {
namespace {

// Far above any configuration; a damaged file can claim more.
constexpr hsize_t kMaxAttributeBytes = hsize_t{1} << 30;

struct OpenAttribute {
  Handle attribute, space, type;
  hsize_t elements = 0;
  std::string label;
};

OpenAttribute open_attribute(const Object& object, const std::string& name, bool scalar) {
  OpenAttribute a;
  a.label = object.label() + "@" + name;
  require(object.has_attribute(name), "'{}' has no attribute '{}'", object.label(), name);
  a.attribute = own(H5Aopen(object.id(), name.c_str(), H5P_DEFAULT), H5Aclose, "cannot open attribute", a.label);
  a.space = own(H5Aget_space(a.attribute.get()), H5Sclose, "cannot read attribute", a.label);
  a.type = own(H5Aget_type(a.attribute.get()), H5Tclose, "cannot read attribute", a.label);
  const hssize_t n = check(H5Sget_simple_extent_npoints(a.space.get()), "cannot read attribute", a.label);
  a.elements = static_cast<hsize_t>(n);
  require(!scalar || a.elements == 1, "attribute '{}' has {} elements instead of 1", a.label, a.elements);
  const hsize_t size = H5Tget_size(a.type.get());
  require(size > 0 && a.elements <= kMaxAttributeBytes / size, "attribute '{}' claims {} elements of {} bytes", a.label,
          a.elements, size);
  return a;
}

template <class T>
T get_number(const Object& object, const std::string& name, H5T_class_t wanted, hid_t memory, const char* what) {
  const Lock lock;
  const OpenAttribute a = open_attribute(object, name, true);
  const H5T_class_t kind = H5Tget_class(a.type.get());
  require(kind == wanted, "attribute '{}' is not {}", a.label, what);
  T value{};
  check(H5Aread(a.attribute.get(), memory, &value), "cannot read attribute", a.label);
  return value;
}

void set_number(Object& object, const std::string& name, hid_t in_file, hid_t in_memory, const void* value) {
  const Lock lock;
  const std::string label = object.label() + "@" + name;
  const Handle space = own(H5Screate(H5S_SCALAR), H5Sclose, "cannot make attribute", label);
  const Handle attribute = own(H5Acreate2(object.id(), name.c_str(), in_file, space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
                               "cannot make attribute", label);
  check(H5Awrite(attribute.get(), in_memory, value), "cannot write attribute", label);
}

std::vector<std::string> read_variable(const OpenAttribute& a) {
  std::vector<char*> pointers(a.elements, nullptr);
  const Handle memory = own(H5Tcopy(H5T_C_S1), H5Tclose, "cannot read attribute", a.label);
  check(H5Tset_size(memory.get(), H5T_VARIABLE), "cannot read attribute", a.label);
  check(H5Tset_cset(memory.get(), H5Tget_cset(a.type.get())), "cannot read attribute", a.label);
  check(H5Aread(a.attribute.get(), memory.get(), pointers.data()), "cannot read attribute", a.label);
  std::vector<std::string> values;
  for (const char* p : pointers) values.emplace_back(p ? p : "");
  H5Dvlen_reclaim(memory.get(), a.space.get(), H5P_DEFAULT, pointers.data());
  return values;
}

std::vector<std::string> read_fixed(const OpenAttribute& a) {
  const std::size_t size = H5Tget_size(a.type.get());
  const H5T_str_t padding = H5Tget_strpad(a.type.get());
  std::vector<char> buffer(a.elements * size);
  check(H5Aread(a.attribute.get(), a.type.get(), buffer.data()), "cannot read attribute", a.label);
  std::vector<std::string> values;
  for (hsize_t i = 0; i < a.elements; ++i) {
    const char* p = buffer.data() + i * size;
    std::size_t length = padding == H5T_STR_NULLTERM ? ::strnlen(p, size) : size;
    const char pad = padding == H5T_STR_SPACEPAD ? ' ' : '\0';
    while (padding != H5T_STR_NULLTERM && length > 0 && p[length - 1] == pad) --length;
    values.emplace_back(p, length);
  }
  return values;
}

herr_t collect_name(hid_t, const char* name, const H5A_info_t*, void* out) {
  static_cast<std::vector<std::string>*>(out)->emplace_back(name);
  return 0;
}

}  // namespace

bool Object::has_attribute(const std::string& name) const {
  const Lock lock;
  return check(H5Aexists(id(), name.c_str()), "cannot look for attributes of", label_) > 0;
}

std::vector<std::string> Object::attribute_names() const {
  const Lock lock;
  std::vector<std::string> names;
  hsize_t position = 0;
  check(H5Aiterate2(id(), H5_INDEX_NAME, H5_ITER_INC, &position, &collect_name, &names), "cannot list attributes of", label_);
  return names;
}

void Object::set_int(const std::string& name, std::int64_t value) {
  set_number(*this, name, H5T_STD_I64LE, H5T_NATIVE_INT64, &value);
}

void Object::set_double(const std::string& name, double value) {
  set_number(*this, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, &value);
}

void Object::set_string(const std::string& name, std::string_view value) {
  write_strings(name, {&value, 1}, true);
}

void Object::set_strings(const std::string& name, const std::vector<std::string>& values) {
  const std::vector<std::string_view> views(values.begin(), values.end());
  write_strings(name, views, false);
}

std::int64_t Object::get_int(const std::string& name) const {
  return get_number<std::int64_t>(*this, name, H5T_INTEGER, H5T_NATIVE_INT64, "an integer");
}

double Object::get_double(const std::string& name) const {
  return get_number<double>(*this, name, H5T_FLOAT, H5T_NATIVE_DOUBLE, "a real number");
}

std::string Object::get_string(const std::string& name) const {
  return read_strings(name, true).front();
}
std::vector<std::string> Object::get_strings(const std::string& name) const {
  return read_strings(name, false);
}

void Object::write_strings(const std::string& name, std::span<const std::string_view> values, bool scalar) {
  const Lock lock;
  const std::string label = label_ + "@" + name;
  std::size_t width = 1;  // HDF5 has no strings of length 0
  for (const std::string_view v : values) {
    require(v.find('\0') == std::string_view::npos, "attribute '{}' must not hold a NUL byte", label);
    width = std::max(width, v.size());
  }
  std::vector<char> buffer(std::max<std::size_t>(1, values.size() * width), '\0');
  for (std::size_t i = 0; i < values.size(); ++i)
    std::copy(values[i].begin(), values[i].end(), buffer.begin() + static_cast<std::ptrdiff_t>(i * width));
  const Handle type = own(H5Tcopy(H5T_C_S1), H5Tclose, "cannot make attribute", label);
  check(H5Tset_size(type.get(), width), "cannot make attribute", label);
  check(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), "cannot make attribute", label);
  check(H5Tset_cset(type.get(), H5T_CSET_UTF8), "cannot make attribute", label);
  const hsize_t n = values.size();
  const Handle space = own(scalar  ? H5Screate(H5S_SCALAR)
                           : n > 0 ? H5Screate_simple(1, &n, nullptr)
                                   : H5Screate(H5S_NULL),
                           H5Sclose, "cannot make attribute", label);
  const Handle attribute = own(H5Acreate2(id(), name.c_str(), type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose,
                               "cannot make attribute", label);
  if (scalar || n > 0) check(H5Awrite(attribute.get(), type.get(), buffer.data()), "cannot write attribute", label);
}

std::vector<std::string> Object::read_strings(const std::string& name, bool scalar) const {
  const Lock lock;
  const OpenAttribute a = open_attribute(*this, name, scalar);
  require(H5Tget_class(a.type.get()) == H5T_STRING, "attribute '{}' is not text", a.label);
  if (a.elements == 0) return {};
  const htri_t variable = check(H5Tis_variable_str(a.type.get()), "cannot read attribute", a.label);
  return variable > 0 ? read_variable(a) : read_fixed(a);
}

}  // namespace qft::io::h5
