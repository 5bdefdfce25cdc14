// Small files of `key: value` lines that are no run files, by the same rules: a struct's visit() says which keys there are.
#pragma once

#include "qft/config/field.h"

#include <filesystem>
#include <functional>
#include <set>
#include <string>

namespace qft::config {

using Visit = std::function<void(const FieldVisitor&)>;

/// Reads a .yaml, .yml or .json file into the members that `visit` names and returns the keys that it gives. Throws
/// ConfigError "file:line: key: ..." for a wrong value, and for an unknown key with the nearest known one.
std::set<std::string, std::less<>> read_fields(const std::filesystem::path& file, const Visit& visit);

/// One member from "key=value"; `where` names the source in errors, which are those of read_fields().
void set_field(const std::string& assignment, const std::string& where, const Visit& visit);

/// The members as YAML, each under its help text as a comment; what is not set, and what `leave_out` names, is left out.
std::string write_fields(const Visit& visit, const std::set<std::string, std::less<>>& leave_out = {});

}  // namespace qft::config
