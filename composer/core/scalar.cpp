#include "composer/core/scalar.h"

#include <type_traits>

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "composer/core/error.h"

namespace composer {

void check_scalar(std::string_view key, const at::Tensor& tensor) {
  if (!tensor.defined()) throw DataError("Logger: ", key, " is an undefined tensor");
  if (tensor.numel() != 1 || tensor.is_complex())
    throw DataError("Logger: ", key, " must be one real number, got a tensor of shape ", tensor.sizes(), " and type ",
                    tensor.scalar_type());
}

Scalar read_scalar(const at::Tensor& tensor) {
  check_scalar("the value", tensor);
  // The memory of a negative view has the other sign.
  if (tensor.is_cpu() && tensor.layout() == at::kStrided && !tensor.is_neg()) {
    switch (tensor.scalar_type()) {
      case at::kFloat:
        return static_cast<double>(*tensor.const_data_ptr<float>());
      case at::kDouble:
        return *tensor.const_data_ptr<double>();
      case at::kHalf:
        return static_cast<double>(static_cast<float>(*tensor.const_data_ptr<at::Half>()));
      case at::kBFloat16:
        return static_cast<double>(static_cast<float>(*tensor.const_data_ptr<at::BFloat16>()));
      case at::kLong:
        return *tensor.const_data_ptr<std::int64_t>();
      case at::kInt:
        return std::int64_t{*tensor.const_data_ptr<std::int32_t>()};
      case at::kBool:
        return *tensor.const_data_ptr<bool>();
      default:
        break;
    }
  }
  const at::Scalar value = tensor.item();
  if (value.isBoolean()) return value.toBool();
  if (value.isIntegral(/*includeBool=*/false)) return value.toLong();
  return value.toDouble();
}

Scalar read_scalar(const LogValue& value) {
  return std::visit(
      [](const auto& held) -> Scalar {
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(held)>, at::Tensor>)
          return read_scalar(held);
        else
          return held;
      },
      value);
}

LogValue value_on_host(const LogValue& value) {
  return std::visit([](auto held) -> LogValue { return held; }, read_scalar(value));
}

}  // namespace composer
