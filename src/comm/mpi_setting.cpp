#include "qft/comm/mpi_setting.h"

#include <algorithm>
#include <cstring>

#include <mpi.h>

namespace qft::comm {
namespace {

std::string read_text(int index) {
  int count = 0, verbosity = 0, binding = 0, scope = 0, name_length = 0, description_length = 0;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_T_enum values{};
  MPI_T_cvar_handle handle{};
  if (MPI_T_cvar_get_info(index, nullptr, &name_length, &verbosity, &type, &values, nullptr, &description_length, &binding,
                          &scope) != MPI_SUCCESS ||
      type != MPI_CHAR || MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) != MPI_SUCCESS)
    return {};
  std::string text(static_cast<std::size_t>(std::max(count, 1)) + 1, '\0');
  const bool read = MPI_T_cvar_read(handle, text.data()) == MPI_SUCCESS;
  MPI_T_cvar_handle_free(&handle);
  text.resize(read ? std::strlen(text.c_str()) : 0);
  return text;
}

}  // namespace

std::string mpi_setting(const std::string& name) {
  int provided = 0, index = 0;
  if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS) return {};
  std::string text;
  if (MPI_T_cvar_get_index(name.c_str(), &index) == MPI_SUCCESS) text = read_text(index);
  MPI_T_finalize();
  return text;
}

}  // namespace qft::comm
