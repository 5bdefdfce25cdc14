// Converts tensors to arguments of the kernel for LoRA's terms.
#pragma once

#include <optional>
#include <span>

#include "../common/launches_cuda.h"
#include "../common/tensor_args.h"
#include "matmul_blocked_cpu.h"

namespace qft::ops {

/// Returns nothing for operands that the kernel does not take: it moves pieces of 16 bytes, and ranks and columns in tiles. Terms
/// share no column.
template <class T>
std::optional<NarrowTerms<T>> narrow_terms_args(const at::Tensor& out, std::span<const blocked::NarrowTerm> terms, bool add) {
  constexpr std::int64_t kPiece = 8, kColumns = 32;
  const auto in_pieces = [](const at::Tensor& t) {
    return t.stride(1) == 1 && t.stride(0) % kPiece == 0 && reinterpret_cast<std::uintptr_t>(t.const_data_ptr()) % 16 == 0;
  };
  if (terms.empty() || std::ssize(terms) > NarrowTerms<T>::kMostParts || out.size(0) == 0 || !in_pieces(out)) return {};
  const blocked::NarrowTerm& first = terms.front();
  NarrowTerms<T> args{
      {}, static_cast<int>(terms.size()), out.size(0), first.a.size(1), first.a.stride(0), out.stride(0), first.b.stride(1) == 1,
      add};
  int blocks = 0;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const auto& [a, b, column0] = terms[i];
    const at::Tensor rows = args.by_rank ? b : b.t();
    if (!in_pieces(a) || a.stride(0) != args.row_stride || a.size(1) != args.ranks || args.ranks % kPiece != 0 ||
        !in_pieces(rows) || !rows.is_contiguous() || b.size(1) % kColumns != 0 || column0 % kPiece != 0)
      return {};
    args.parts[i] = {const_data<T>(a), const_data<T>(b), data<T>(out) + column0, b.size(1), blocks};
    blocks += cuda::term_blocks(b.size(1));
  }
  return args;
}

}  // namespace qft::ops
