"""Steps of mirror maps and Euclidean projections, in O(d) or a few dozen times that.

Sets are known by number (see `PowerMap.step`): 0 the l1 ball, 1 the simplex, 2 an l_p
ball with 1 < p < inf, 3 the cube. All is scaled so that the radius is 1. The formulas are
derived in doc/extending.rst, "A mirror map".
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .jit import njit

_L1, _SIMPLEX, _LP, _CUBE = 0, 1, 2, 3
_MOST = 100  # iterations of any loop; a bracket in floats is exhausted well before
_LARGEST = 1e20  # bound on a step: then the result depends on its direction, to 20 digits
_SMALLEST = 1e-200  # smaller coordinates of the simplex are raised to it: 0 would stay 0
_EDGE = 1e-15  # an l1 norm above 1 - this is lowered to it: at 1 the map's gradient is infinite


@njit(cache=True, inline="always")
def _signed_power(x: Any, exponent: float) -> Any:
    return np.copysign(np.abs(x) ** exponent, x)


@njit(cache=True)
def _norm(x: Any, p: float) -> float:
    largest = 0.0
    for j in range(x.size):
        largest = max(largest, abs(x[j]))
    if largest == 0.0 or p == math.inf:
        return largest
    total = 0.0
    for j in range(x.size):
        if p == 1.0:
            total += abs(x[j]) / largest
        elif p == 2.0:
            total += (x[j] / largest) ** 2
        else:
            total += (abs(x[j]) / largest) ** p
    return largest * total ** (1 / p)


@njit(cache=True)
def _look(bracket: Any, floor: float, near: float) -> tuple[float, float, bool]:
    """The best point of a bracket, where to look next, and whether the best is good enough.

    A bracket is (a, f(a), b, f(b), c, f(c)) with a root between a and b, and c the point before.
    Chandrupatla (1997): interpolation where that is safe, else bisection.
    """
    a, f_a, b, f_b, c, f_c = bracket
    best, f_best = (b, f_b) if abs(f_b) < abs(f_a) else (a, f_a)
    least = (2e-16 * abs(best) + floor) / abs(b - a) if a != b else 1.0
    if least > 0.5 or abs(f_best) < near:
        return best, best, True
    t = 0.5
    if c != b and f_c != f_b and math.isfinite(f_a + f_b + f_c):
        xi, phi = (a - b) / (c - b), (f_a - f_b) / (f_c - f_b)
        if phi**2 < xi and (1 - phi) ** 2 < 1 - xi:
            t = f_a / (f_b - f_a) * f_c / (f_b - f_c)
            t += (c - a) / (b - a) * f_a / (f_c - f_a) * f_b / (f_c - f_b)
    return best, a + min(1 - least, max(least, t)) * (b - a), False


@njit(cache=True)
def _narrowed(bracket: Any, x: float, f: float) -> Any:
    a, f_a, b, f_b, _, _ = bracket
    if (f > 0) == (f_a > 0):
        return x, f, b, f_b, a, f_a
    return x, f, a, f_a, b, f_b


# ------------------------------------------------------------- one coordinate's equation


@njit(cache=True)
def _sum_of_powers(alpha: float, beta: float, exponent: float, y: float) -> float:
    """The v >= 0 with alpha v^exponent + beta v = y, exponent >= 1, y >= 0: Newton from above."""
    if y == 0.0:
        return 0.0
    v = y / beta if beta > 0 else math.inf  # the start is within a factor of 2
    if alpha > 0:
        v = min(v, (y / alpha) ** (1 / exponent))
    for _ in range(_MOST):
        power = alpha * v ** (exponent - 1)
        smaller = v - (power * v + beta * v - y) / (exponent * power + beta)
        if not smaller < v:
            break
        v = max(smaller, 0.0)
    return v


@njit(cache=True)
def _shifted_powers(a: float, b: float, e: float, x_0: float, c: float) -> float:
    """The x with <a x>^e + <b (x - x_0)>^e = c, <.>^e the signed power, for e >= 1.

    In each of three ranges the equation says that an l_e norm of an affine map of x is
    an affine function of x: convex, nearly linear, and solved by Newton from above.
    """
    if x_0 < 0:
        return -_shifted_powers(a, b, e, -x_0, -c)
    at_0 = -((b * x_0) ** e) - c
    at_x_0 = (a * x_0) ** e - c
    size = abs(c) ** (1 / e)
    if at_0 > 0:  # x = -v, v > 0: |(a v, b (v + x_0))|_e = size
        start = min(size / a, size / b - x_0)
        return -_newton(a, 0.0, b, b * x_0, e, 0.0, size, start)
    if at_x_0 < 0:  # x = x_0 + v, v > 0: |(a (v + x_0), b v)|_e = size
        start = min(size / a - x_0, size / b)
        return x_0 + _newton(a, a * x_0, b, 0.0, e, 0.0, size, start)
    if c <= 0:  # |(a x, size)|_e = b (x_0 - x)
        start = min(b * x_0 / (a + b), x_0 - size / b)
        return _newton(a, 0.0, 0.0, size, e, b, b * x_0, start)
    # v = x_0 - x: |(b v, size)|_e = a (x_0 - v)
    start = min(a * x_0 / (a + b), x_0 - size / a)
    return x_0 - _newton(b, 0.0, 0.0, size, e, a, a * x_0, start)


@njit(cache=True)
def _newton(
    a: float, a_0: float, b: float, b_0: float, e: float, slope: float, target: float, v: float
) -> float:
    """The v >= 0 with |(a v + a_0, b v + b_0)|_e + slope v = target, from a v above it."""
    v = max(v, 0.0)
    for _ in range(_MOST):
        x, y = a * v + a_0, b * v + b_0
        largest = max(x, y)
        if largest == 0.0:
            break
        x, y = x / largest, y / largest
        x_power, y_power = x ** (e - 1), y ** (e - 1)
        total = x_power * x + y_power * y
        norm = total ** (1 / e)
        steep = (a * x_power + b * y_power) * norm / total + slope
        smaller = v - (largest * norm + slope * v - target) / steep
        if not smaller < v:
            break
        v = max(smaller, 0.0)
    return v


# -------------------------------------------------------------------- Euclidean projection


@njit(cache=True)
def _shrunk(y: float, factor: float, multiplier: float, p: float) -> float:
    """The w with factor w + multiplier sign(w) |w|^(p - 1) = y."""
    if p > 2:
        w = _sum_of_powers(multiplier, factor, p - 1, abs(y))
    else:
        w = _sum_of_powers(factor, multiplier, 1 / (p - 1), abs(y)) ** (1 / (p - 1))
    return math.copysign(w, y)


@njit(cache=True)
def _shrink(y: Any, multiplier: float, p: float, out: Any) -> float:
    """Into `out` the point of that multiplier; returns how far outside of the unit ball it is."""
    for j in range(y.size):
        out[j] = _shrunk(y[j], 1.0, multiplier, p)
    return _norm(out, p) - 1


@njit(cache=True)
def project_lp(y: Any, p: float) -> Any:
    """Nearest point of the unit l_p ball, 1 < p < inf, to a point outside of it."""
    out = np.empty(y.size)
    # the multiplier is |y - w|_q, at most |y|_q
    a, b = 0.0, _norm(y, p / (p - 1))
    f_a, f_b = _norm(y, p) - 1, _shrink(y, b, p, out)
    bracket = (a, f_a, b, f_b, a, f_a)
    for _ in range(_MOST):
        _, x, is_done = _look(bracket, 0.0, 1e-15)
        if is_done:
            break
        bracket = _narrowed(bracket, x, _shrink(y, x, p, out))
    a, f_a, b, f_b, _, _ = bracket
    _shrink(y, a if abs(f_a) <= abs(f_b) else b, p, out)
    return out / max(1.0, _norm(out, p))


# --------------------------------------------------------------------------- power maps


@njit(cache=True)
def power_gradient(u: Any, p: float) -> Any:
    """Gradient of |u|_p^2 / 2."""
    r = _norm(u, p)
    return r * _signed_power(u / r, p - 1) if r > 0 else np.zeros(u.size)


@njit(cache=True)
def _threshold(theta: Any, p: float) -> Any:
    """The unit l1 norm point proportional to (theta - nu)_+^(q - 1), nu fit to the map.

    With delta = max - nu and z = (1 - (max - theta) / delta)_+, delta solves
    delta (sum z^(q-1)) (sum z^q)^(1 - 2/p) = 1, and lies in [d^(-2/q), 1].
    """
    d = theta.size
    q = p / (p - 1)
    top = np.max(theta)
    low, high, delta = d ** (-2 / q) * (1 - 1e-14), 1.0, d ** (-1 / q)
    for _ in range(_MOST):
        lower, higher, lower_slope = 0.0, 0.0, 0.0
        for j in range(d):
            z = 1 - (top - theta[j]) / delta
            if z > 0:
                power = z ** (q - 2)
                lower_slope += power * (1 - z)
                lower += power * z
                higher += power * z * z
        value = delta * lower * higher ** (1 - 2 / p)
        log_slope = 1 + (q - 1) * lower_slope / lower
        log_slope += (1 - 2 / p) * q * (lower - higher) / higher
        if value > 1:
            high = delta
        else:
            low = delta
        new = delta * math.exp(-math.log(value) / log_slope) if log_slope > 0 else 0.0
        if not low < new < high:
            new = (low + high) / 2
        if abs(new - delta) <= 2e-16 * delta or not low < new < high:
            break
        delta = new
    return np.maximum(1 - (top - theta) / delta, 0.0) ** (q - 1) / lower


@njit(cache=True)
def _candidate(search: Any, x: float, delta: float, u: Any) -> tuple[float, float]:
    """The u with a <u>^(p-1) + (1 - delta) * (normal of the set at u + c) = theta.

    `search` is (domain, theta, scale, c, bend, log_within) of a step that the set binds.

    Here a scale = exp(-(p - 1) x), and `bend` is <c>^(p-1). Returns what increases in x, and is 0
    where u has the norm that the map or `within` asks for, and how far u + c lies outside the set.
    The argument is delta, and not the multiplier 1 - delta, since small differences from 1, the
    largest |theta|, would be rounded.
    """
    (set_id, set_p, _, p), theta, scale, c, bend, log_within = search
    a = math.exp(min(600.0, max(-600.0, -(p - 1) * x))) / scale
    e, lam = 1 / (p - 1), 1 - delta
    total, size = 0.0, 0.0
    if set_id == _LP:
        for j in range(u.size):
            if lam == 0.0:
                u[j] = _signed_power(theta[j] / a, e)
            elif p == 2.0:
                u[j] = _shrunk(theta[j] + a * c[j], a, lam, set_p) - c[j]
            else:  # here the norm of the set is that of the map
                share = _shifted_powers(1 / a, 1 / lam, e, theta[j], -c[j])
                rest = theta[j] - share
                # each is right to the digits of theta: take the larger of the two
                if abs(share) > abs(rest):
                    u[j] = _signed_power(share / a, e)
                else:
                    u[j] = _signed_power(rest / lam, e) - c[j]
        log_u, size = math.log(max(_norm(u, p), 1e-300)), _norm(u + c, set_p)
    else:
        for j in range(u.size):
            above, below = (theta[j] - 1) + delta, (theta[j] + 1) - delta
            if set_id == _CUBE:
                u[j] = min(max(theta[j] / a, -1 - c[j]), 1 - c[j])
                total += u[j] * u[j]
            elif above + a * bend[j] > 0 or (set_id == _L1 and below + a * bend[j] < 0):
                y = (above if above + a * bend[j] > 0 else below) / a
                u[j] = _signed_power(y, e)
                total += abs(u[j] * y)
                size += abs(u[j] + c[j])
            else:
                u[j] = -c[j]
                total += abs(c[j] * bend[j])
        log_u = math.log(max(total, 1e-300)) / p
    return max((2 - p) * log_u + (p - 1) * x, log_u - log_within), size - 1


@njit(cache=True)
def _balance(search: Any, delta: float, x: float, u: Any) -> tuple[float, float]:
    """For a multiplier of the set, find x = -ln(a scale) / (p - 1), a that of the norm."""
    f, outside = _candidate(search, x, delta, u)
    if f == 0.0:
        return x, outside
    a, f_a, b, f_b, width = x, f, x, f, 0.125
    for _ in range(_MOST):  # the function's slope is at most 1: walk at least f
        b = a - math.copysign(max(width, min(abs(f_a), 50.0)) * (1 + 1e-12), f)
        f_b, outside = _candidate(search, b, delta, u)
        if (f_b > 0) != (f > 0):
            break
        a, f_a, width = b, f_b, 2 * width
    last, best = b, b
    bracket = (a, f_a, b, f_b, a, f_a)
    for _ in range(_MOST):
        best, x, is_done = _look(bracket, 1e-16, 4e-16)
        if is_done:
            break
        last = x
        f, outside = _candidate(search, last, delta, u)
        bracket = _narrowed(bracket, last, f)
    if best != last:
        f, outside = _candidate(search, best, delta, u)
    return best, outside


@njit(cache=True)
def _two_constraints(search: Any, x: float, u: Any) -> None:
    """Fill u for a point that the set binds, x a first guess: root in its multiplier."""
    (set_id, _, _, p), _, scale, c, bend, _ = search
    bend[:] = _signed_power(c, p - 1)
    if set_id == _CUBE:
        _balance(search, 1.0, x, u)
        return
    # outside of the set at a, the delta of the smallest multiplier; look for b within
    a = 2.0 if set_id == _SIMPLEX else 1.0
    x, f_a = _balance(search, a, x, u)
    smallest = 1e-3 / scale
    b, f_b = a, f_a
    for _ in range(_MOST):
        b = b / 16 if b > smallest else min(8 * b, -smallest)
        x, f_b = _balance(search, b, x, u)
        if f_b <= 0:
            break
        a, f_a = b, f_b
    bracket = (a, f_a, b, f_b, a, f_a)
    best = b
    for _ in range(_MOST):
        best, delta, is_done = _look(bracket, 0.0, 1e-15)
        if is_done:
            break
        x, f = _balance(search, delta, x, u)
        bracket = _narrowed(bracket, delta, f)
    _balance(search, best, x, u)


@njit(cache=True, error_model="numpy")
def power_step(coef: Any, g: Any, step: float, center: Any, within: float, domain: Any) -> Any:
    """Argmin of <g, w> + D(w, coef) / step over the set and |w - center|_p <= within.

    `domain` is (number of the set, p of its norm, radius, p of the map |w|_p^2 / (2 (p - 1))).
    With u = w - center and theta = grad(coef) - step * g this is the argmin of
    |u|_p^2 / 2 - <theta, u>, in closed form where only one norm binds. A center of None is the
    origin, for which the code of others is not compiled.
    """
    d, (set_id, set_p, radius, p) = coef.size, domain
    largest, c = _norm(g, math.inf), np.zeros(d)
    if largest == 0.0 or step == 0.0:
        return coef.copy()
    u = coef / radius
    if center is not None:
        c, u = center / radius, (coef - center) / radius
    theta = power_gradient(u, p)
    factor = min((p - 1) * step / radius, _LARGEST / largest)
    theta -= factor * g
    low, top = np.min(theta), np.max(theta)
    if set_id == _SIMPLEX:  # the same constant on all coordinates changes nothing
        middle = low + (top - low) / 2
        top -= middle
        theta -= middle
    scale = top if set_id == _SIMPLEX else max(-low, top)
    if center is None and set_id == _SIMPLEX:
        u = _threshold(theta, p)
    else:
        if scale < 1e-290:  # nothing moves
            return np.zeros(d) if center is None else center.copy()
        theta /= scale
        # where the set does not bind: the inverse gradient, cut to `within`
        dual = _norm(theta, p / (p - 1))
        length = min(scale * dual, within / radius)
        u = length * _signed_power(theta / dual, 1 / (p - 1))
        if set_id == _SIMPLEX or not _norm(u + c, set_p) <= 1:
            if center is None:
                u = _onto_set(theta, scale, domain, u)
            elif set_p == 2 and p == 2:
                _two_balls(theta, scale, c, within / radius, u)
            else:
                x = math.log(length) - (math.log(dual) + math.log(scale)) / (p - 1)
                search = domain, theta, scale, c, np.empty(d), math.log(within / radius)
                _two_constraints(search, x, u)
    u *= radius
    return u if center is None else u + center


@njit(cache=True, error_model="numpy")
def _onto_set(theta: Any, scale: float, domain: Any, u: Any) -> Any:
    """The step of a map about 0 that leaves the set."""
    set_id, set_p, _, p = domain
    if set_id == _LP and set_p != p:
        return project_lp(u, set_p)
    if set_id == _L1:
        return np.copysign(_threshold(np.abs(theta * scale), p), theta)
    if set_id == _CUBE:
        return np.clip(u, -1.0, 1.0)
    return u / _norm(u, p)  # the norm of the map is that of the set: the direction stays


@njit(cache=True, error_model="numpy")
def _two_balls(theta: Any, scale: float, c: Any, within: float, u: Any) -> None:
    """Euclidean: project v = c + scale * theta onto the unit ball and the one about c.

    Called where the second alone does not do. Where the first does not either, the point
    lies on both spheres: <u, c> and |u| are known, and the rest of u points as that of v.
    """
    v = c / scale + theta  # up to its length
    cc, vc = np.sum(c * c), np.sum(v * c)
    u[:] = v / math.sqrt(np.sum(v * v)) - c
    if np.sum(u * u) <= within**2:
        return
    along = (1 - cc - within**2) / (2 * cc)
    v -= vc / cc * c
    rest = np.sum(v * v)
    factor = math.sqrt(max(0.0, within**2 - along**2 * cc) / rest) if rest > 0 else 0.0
    u[:] = along * c + factor * v


# -------------------------------------------------------------------------------- entropy


@njit(cache=True)
def entropy_step_simplex(coef: Any, gradient: Any, step: float, radius: float) -> Any:
    """w_j proportional to coef_j exp(-step gradient_j / radius)."""
    change = gradient - np.min(gradient)
    # 0 times an overflowing step is still 0
    moved = np.where(change > 0, step / radius * change, 0.0)
    out = np.log(np.maximum(coef / radius, _SMALLEST)) - moved
    out = np.exp(out - np.max(out))
    return out * (radius / np.sum(out))


@njit(cache=True)
def entropy_dual_l1(coef: Any, radius: float) -> Any:
    """The t with coef_j = radius sinh(t_j) / sum_k cosh(t_k).

    t_j = arsinh(coef_j z / (2 radius)), where z = sum_j 2 cosh(t_j) is the root of the
    concave increasing gap * z - sum_j 4 / (sqrt(4 + (b_j z)^2) + b_j z), b = |coef| /
    radius, gap = 1 - sum b; Newton from the left.
    """
    d, b = coef.size, np.abs(coef) / radius
    size = np.sum(b)
    if size > 1 - _EDGE:
        b *= (1 - _EDGE) / size
    gap = max(1 - size, _EDGE)
    z = 2.0 * d
    for _ in range(_MOST):
        value, slope = gap * z, gap
        for j in range(d):
            root = math.sqrt(4 + (b[j] * z) ** 2)
            part = 4 / (root + b[j] * z)
            value -= part
            slope += b[j] * part / root
        larger = z - value / slope
        if not larger > z * (1 + 1e-16):
            break
        z = larger
    return np.copysign(np.arcsinh(b * z / 2), coef)


@njit(cache=True)
def entropy_step_l1(coef: Any, gradient: Any, step: float, radius: float) -> Any:
    """coef_j = radius sinh(t_j) / sum_k cosh(t_k), t moved by -step * gradient / radius."""
    t = entropy_dual_l1(coef, radius)
    largest = _norm(gradient, math.inf)
    if largest == 0.0 or step == 0.0:
        return coef.copy()
    factor = min(step / radius, _LARGEST / largest)
    t -= factor * gradient
    size = np.abs(t)
    large = np.exp(size - np.max(size))
    total = np.sum(large * (1 + np.exp(-2 * size)))
    return np.copysign(-large * np.expm1(-2 * size), t) * (radius / total)
