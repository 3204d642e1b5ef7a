#include "composer/dist/collectives.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "composer/core/error.h"
#include "composer/dist/impl.h"
#include "composer/dist/world.h"

namespace composer::dist {
namespace {

constexpr std::size_t kMessage = 64u << 20;  // bytes of tensors that broadcast() packs into one message

using Tensors = std::vector<at::Tensor>;

std::size_t bytes_in_message(const at::Tensor& tensor) { return static_cast<std::size_t>(tensor.nbytes()); }

void check_parts(const char* who, const at::Tensor& all, const at::Tensor& part, int size) {
  if (all.numel() != part.numel() * size || all.scalar_type() != part.scalar_type())
    throw Error(who, ": the tensor of all parts is ", all.scalar_type(), all.sizes(), ", but the part is ",
                part.scalar_type(), part.sizes(), " and there are ", size, " ranks");
}

// Where the message that starts with the tensor at `begin` ends: a message holds the bytes of tensors on one device.
std::size_t end_of_message(const Tensors& tensors, std::size_t begin) {
  std::size_t end = begin + 1, bytes = bytes_in_message(tensors[begin]);
  while (end < tensors.size() && tensors[end].device() == tensors[begin].device() &&
         bytes + bytes_in_message(tensors[end]) <= kMessage)
    bytes += bytes_in_message(tensors[end++]);
  return end;
}

void unpack(const at::Tensor& message, const Tensors& tensors, std::size_t begin, std::size_t end) {
  std::int64_t at = 0;
  for (std::size_t i = begin; i < end; ++i) {
    const auto length = static_cast<std::int64_t>(bytes_in_message(tensors[i]));
    if (length == 0) continue;
    const at::Tensor values = at::empty(tensors[i].sizes(), tensors[i].options().requires_grad(false));
    flat_bytes(values).copy_(message.narrow(0, at, length));
    copy_back(tensors[i], values);
    at += length;
  }
}

}  // namespace

void World::Impl::check(const char* what, const at::Tensor& tensor) {
  if (!options.check_collectives) return;
  constexpr std::int64_t kLength = 256;
  const std::string own =
      composer::join(what, " of ", tensor.scalar_type(), ' ', tensor.sizes(), " on ", tensor.device().type());
  const at::Tensor text = at::zeros({kLength}, at::kByte), texts = at::empty({group->getSize(), kLength}, at::kByte);
  std::memcpy(text.mutable_data_ptr(), own.data(), std::min<std::size_t>(own.size(), kLength - 1));
  start_all_gather(*group->getBackend(c10::DeviceType::CPU), flat_bytes(texts), text)->wait();
  std::string list;
  bool differ = false;
  for (std::int64_t rank = 0; rank < texts.size(0); ++rank) {
    const auto* of_rank = reinterpret_cast<const char*>(texts[rank].const_data_ptr<std::uint8_t>());
    list += composer::join(rank > 0 ? "; rank " : "rank ", rank, ": ", of_rank);
    differ = differ || !at::equal(texts[rank], text);
  }
  if (differ) throw Error("World: the ranks called different collectives: ", list);
}

c10d::Backend& World::Impl::backend(const at::Tensor& tensor) const {
  if (!tensor.is_cpu() && !accelerator->has(tensor.device()))
    throw ConfigError("World: a collective on ", tensor.device(), " needs a call of use_device() with it before");
  return *group->getBackend(tensor.device().type());
}

WorkPtr World::Impl::start_reduce(const at::Tensor& tensor, ReduceOp op) {
  c10d::AllreduceOptions reduce;
  reduce.reduceOp = op;
  Tensors list{tensor};
  return backend(tensor).allreduce(list, reduce);
}

void World::Impl::reduce(const char* what, const at::Tensor& tensor, ReduceOp op) {
  collective([&] {
    check(what, tensor);
    if (tensor.numel() == 0) return;
    const Reducible form = reducible(tensor, op);
    start_reduce(form.tensor, form.op)->wait();
    copy_back(tensor, form.tensor);
  });
}

void World::barrier() {
  if (is_alone()) return;
  Impl& impl = Impl::of(impl_);
  impl.collective([&] {
    impl.check("barrier", at::empty({0}));
    impl.group->getBackend(c10::DeviceType::CPU)->barrier()->wait();
  });
}

void World::sum(const at::Tensor& tensor) {
  if (!is_alone()) Impl::of(impl_).reduce("sum", tensor, ReduceOp::SUM);
}
void World::max(const at::Tensor& tensor) {
  if (!is_alone()) Impl::of(impl_).reduce("max", tensor, ReduceOp::MAX);
}
void World::min(const at::Tensor& tensor) {
  if (!is_alone()) Impl::of(impl_).reduce("min", tensor, ReduceOp::MIN);
}

std::function<void()> World::start_sum(const at::Tensor& tensor) {
  if (is_alone()) return [] {};
  std::function<void()> wait = [] {};
  Impl& impl = Impl::of(impl_);
  impl.collective([&] {
    impl.check("sum", tensor);
    if (tensor.numel() == 0) return;
    const Reducible form = reducible(tensor, ReduceOp::SUM);
    wait = [&impl, tensor, result = form.tensor, work = impl.start_reduce(form.tensor, form.op)] {
      impl.collective([&] {
        work->wait();
        copy_back(tensor, result);
      });
    };
  });
  return wait;
}

void World::broadcast(const at::Tensor& tensor, int root) {
  if (is_alone()) return;
  if (root < 0 || root >= size()) throw Error("World::broadcast: there is no rank ", root, " among ", size());
  Impl& impl = Impl::of(impl_);
  impl.collective([&] {
    impl.check("broadcast", tensor);
    if (tensor.numel() == 0) return;
    const at::Tensor values = tensor.detach().contiguous();
    Tensors bytes{flat_bytes(values)};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    impl.backend(tensor).broadcast(bytes, options)->wait();
    copy_back(tensor, values);
  });
}

void World::broadcast(const Tensors& tensors, int root) {
  if (is_alone()) return;
  for (std::size_t begin = 0, end = 0; begin < tensors.size(); begin = end) {
    end = end_of_message(tensors, begin);
    if (end == begin + 1) {
      broadcast(tensors[begin], root);
      continue;
    }
    Tensors parts;
    for (std::size_t i = begin; i < end; ++i)
      if (tensors[i].numel() > 0) parts.push_back(flat_bytes(tensors[i]));
    if (parts.empty()) continue;
    const at::Tensor message = at::cat(parts);
    broadcast(message, root);
    if (rank() != root) unpack(message, tensors, begin, end);
  }
}

Tensors World::all_gather(const at::Tensor& tensor) {
  if (is_alone()) return {tensor.detach().clone()};
  std::vector<std::int64_t> shape = tensor.sizes().vec();
  shape.insert(shape.begin(), size());
  const at::Tensor all = at::empty(shape, tensor.options().requires_grad(false));
  all_gather_into(all, tensor);
  return all.unbind();
}

void World::all_gather_into(const at::Tensor& all, const at::Tensor& part) {
  check_parts("World::all_gather_into", all, part, size());
  if (is_alone()) return copy_back(all, part.detach().view_as(all));
  Impl& impl = Impl::of(impl_);
  impl.collective([&] {
    impl.check("all_gather", part);
    if (part.numel() == 0) return;
    const at::Tensor result = all.detach().contiguous();
    start_all_gather(impl.backend(part), flat_bytes(result), flat_bytes(part))->wait();
    copy_back(all, result);
  });
}

void World::reduce_scatter(const at::Tensor& part, const at::Tensor& all) {
  check_parts("World::reduce_scatter", all, part, size());
  if (is_alone()) return copy_back(part, all.detach().view_as(part));
  Impl& impl = Impl::of(impl_);
  impl.collective([&] {
    impl.check("reduce_scatter", part);
    if (part.numel() == 0) return;
    const Reducible sent = reducible(all, ReduceOp::SUM), received = reducible(part, ReduceOp::SUM);
    start_reduce_scatter(impl.backend(part), received.tensor.view({-1}), sent.tensor.view({-1}), sent.op)->wait();
    copy_back(part, received.tensor);
  });
}

void World::exchange(const at::Tensor& received, const at::Tensor& sent) {
  check_parts("World::exchange", received, sent, 1);
  if (sent.numel() % size() != 0)
    throw Error("World::exchange: ", sent.numel(), " elements cannot be divided into ", size(), " equal parts");
  if (is_alone()) return copy_back(received, sent.detach().view_as(received));
  Impl& impl = Impl::of(impl_);
  impl.collective([&] {
    impl.check("exchange", sent);
    if (sent.numel() == 0) return;
    const at::Tensor result = received.detach().contiguous();
    start_exchange(impl.backend(sent), flat_bytes(result), flat_bytes(sent))->wait();
    copy_back(received, result);
  });
}

}  // namespace composer::dist
