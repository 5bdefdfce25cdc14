// Checks whether the host may wait for a device now (wait_check.h). Private to device.
#pragma once

namespace qft::device {

/// Throws c10::Error with `what` while without_waits() runs armed.
void check_wait_allowed(const char* what);

}  // namespace qft::device
