// Small files of `key: value` lines that follow the rules of run files. A struct's visit() defines their keys.
#pragma once

#include "qft/config/field.h"

#include <filesystem>
#include <functional>
#include <set>
#include <string>

namespace qft::config {

using Visit = std::function<void(const FieldVisitor&)>;

/// Reads a .yaml, .yml or .json file into the members that `visit` names. Returns the keys in the file. Throws ConfigError
/// "file:line: key: ..." for a wrong value; for an unknown key the error suggests the nearest known one.
std::set<std::string, std::less<>> read_fields(const std::filesystem::path& file, const Visit& visit);

/// Sets one member from "key=value". `where` names the source in errors. Throws the same errors as read_fields().
void set_field(const std::string& assignment, const std::string& where, const Visit& visit);

/// Returns the members as YAML, each below its help text as a comment. Omits unset members and the keys in `leave_out`.
std::string write_fields(const Visit& visit, const std::set<std::string, std::less<>>& leave_out = {});

}  // namespace qft::config
