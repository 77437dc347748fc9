"""Compiled loops of the Crammer–Singer problem.

α is kept in compressed rows (``ptr``, ``outputs``, ``alpha``), of which the first entry is the sample's own
class, whatever its α, and the others are rivals. α = C·e_y − λ is on the simplex {α ≥ 0, Σ_c α_c = C}; g is
the gradient of the dual in α, g_c = w_c·f + [c ≠ y]. A sample is optimal where all its classes with α_c > 0
share the largest g_c. ``times`` is how many classes each one stands for: sums over classes count it so
often.
"""

from __future__ import annotations

import numpy as np

from whence.svm.loops import axpy, gather_scores, jit, random_below


@jit
def shift_to_simplex(v, times, classes, m, C):
    """Return θ with Σ_c max(v_c − θ, 0) = C over the first m entries of v (Michelot's iteration)."""
    theta = v[0]
    for c in range(1, m):
        theta = max(theta, v[c])
    theta -= C
    for _ in range(m):
        total = 0.0
        count = 0.0
        for c in range(m):
            if v[c] > theta:
                total += times[classes[c]] * v[c]
                count += times[classes[c]]
        new = (total - C) / max(count, 1.0)
        if new <= theta:
            break
        theta = new
    return theta


@jit
def total_own(ptr, outputs, alpha, times):
    """Return Σ_i λ_{i,y_i} and the largest λ_{i,y_i}.

    λ_y is Σ_{c ≠ y} α_c, not C − α_y: that would lose the digits of a small λ under a large C.
    """
    total = 0.0
    most = 0.0
    for i in range(len(ptr) - 1):
        own = 0.0
        for p in range(ptr[i] + 1, ptr[i + 1]):
            own += times[outputs[p]] * alpha[p]
        total += own
        most = max(most, own)
    return total, most


@jit
def complete(ptr, outputs, alpha, times, C):
    """Set α of the label to the remainder of C."""
    for i in range(len(ptr) - 1):
        left = C
        for p in range(ptr[i] + 1, ptr[i + 1]):
            left -= times[outputs[p]] * alpha[p]
        alpha[ptr[i]] = max(left, 0.0)


@jit
def coefficients(ptr, outputs, alpha, times, out):
    """Return λ of the kept classes."""
    for i in range(len(ptr) - 1):
        own = 0.0
        for p in range(ptr[i] + 1, ptr[i + 1]):
            own += times[outputs[p]] * alpha[p]
            out[p] = -alpha[p]
        out[ptr[i]] = own


@jit
def sort_entries(indices, data, start, stop):
    """Sort a few entries by their index."""
    for p in range(start + 1, stop):
        index, value = indices[p], data[p]
        q = p
        while q > start and indices[q - 1] > index:
            indices[q] = indices[q - 1]
            data[q] = data[q - 1]
            q -= 1
        indices[q] = index
        data[q] = value


@jit
def quantise(ptr, outputs, alpha, times, C, grid, indptr, indices, data, fill):
    """Return λ = C·e_y − α on a grid, in compressed rows; only count entries unless ``fill``.

    Entries are multiples of ``grid`` small enough to add without rounding, so that rows sum to exactly zero;
    a sample wholly on one other class is at its bound, exactly (C, −C).
    """
    most = np.floor(C / grid)
    n = 0
    for i in range(len(ptr) - 1):
        count = 0
        total = 0.0
        largest = -1
        top = 0.0
        for p in range(ptr[i] + 1, ptr[i + 1]):
            k = np.floor(alpha[p] / grid)
            if k > 0.0:
                count += 1
                total += times[outputs[p]] * k
                if k > top:
                    largest, top = p, k
        # Rounding in α can leave the sum slightly above C.
        less = 0.0
        if total > most:
            less = np.ceil((total - most) / times[outputs[largest]])
            total -= times[outputs[largest]] * less
        bound = count == 1 and times[outputs[largest]] == 1.0 and total >= most - 1.0
        if count > 0 and fill:
            start = n
            indices[n] = outputs[ptr[i]]
            data[n] = C if bound else total * grid
            n += 1
            for p in range(ptr[i] + 1, ptr[i + 1]):
                k = np.floor(alpha[p] / grid)
                if k > 0.0:
                    k -= less if p == largest else 0.0
                    indices[n] = outputs[p]
                    data[n] = -C if bound else -k * grid
                    n += 1
            sort_entries(indices, data, start, n)
        elif count > 0:
            n += count + 1
        indptr[i + 1] = n
    return n


@jit
def largest(row):
    """Return the largest of some numbers."""
    # Sequential maxima depend on each other; eight run in parallel.
    a = b = c = d = e = f = g = h = row[0]
    k = 0
    while k + 8 <= len(row):
        a = max(a, row[k])
        b = max(b, row[k + 1])
        c = max(c, row[k + 2])
        d = max(d, row[k + 3])
        e = max(e, row[k + 4])
        f = max(f, row[k + 5])
        g = max(g, row[k + 6])
        h = max(h, row[k + 7])
        k += 8
    while k < len(row):
        a = max(a, row[k])
        k += 1
    return max(max(max(a, b), max(c, d)), max(max(e, f), max(g, h)))


@jit
def above(s, start, stop, bar, values, classes, n):
    """Add the classes from ``start`` to ``stop`` above a bar to the n largest so far.

    Returns their number, and the bar, which rises once there is no more room.
    """
    most = len(values)
    for first in range(start, stop, 32):
        last = min(first + 32, stop)
        if largest(s[first:last]) <= bar:  # a fast check
            continue
        for c in range(first, last):
            if s[c] > bar:
                k = n
                if n == most:
                    k = np.argmin(values)
                else:
                    n += 1
                values[k], classes[k] = s[c], c
                if n == most:
                    bar = max(bar, values.min())
    return n, bar


@jit
def look(scores, rows, ptr, outputs, alpha, slack, most, margins, near, counts, moving, listed):
    """Compute losses of a block of scores, which are overwritten, and the movable classes.

    A class may move when α_c > 0, or when its gradient is above the smallest one of those, less ``slack``; of
    the latter so many are listed as ``most`` says. The own class is listed whether or not it may move, and
    first. Returns Σ loss, Σ d loss/d scale of W, the smallest margin s_y − s_c, how many samples are split
    between classes with α_c > 0, Σ (classes − 1) over those, and how many classes are listed.
    """
    K = scores.shape[1]
    values = np.empty(most)
    classes = np.empty(most, np.int64)
    loss = 0.0
    slope = 0.0
    smallest = np.inf
    free = 0
    pairs = 0
    used = 0
    for o in range(len(rows)):
        i = rows[o]
        s = scores[o]
        start = used
        first = ptr[i]
        y = outputs[first]
        own = s[y]
        s[y] = -np.inf
        top = largest(s)
        margin = own - top
        smallest = min(smallest, margin)
        if margin < 1.0:
            loss += 1.0 - margin
            slope -= margin
        margins[i] = margin
        listed[used] = y
        used += 1
        count = 0
        lowest = np.inf
        for p in range(first + 1, ptr[i + 1]):
            if alpha[p] > 0.0:
                c = outputs[p]
                count += 1
                lowest = min(lowest, s[c] + 1.0)
                s[c] = -np.inf
                listed[used] = c
                used += 1
        rest = largest(s) if count > 0 else top
        best = rest + 1.0  # the largest g of a class without α
        at = lowest  # g of the only class with α
        own_moves = alpha[first] > 0.0
        if own_moves:
            count += 1
            lowest = min(lowest, own)
            at = own
        else:
            best = max(best, own)
        near[i] = at - best if count == 1 else -np.inf
        if count > 1:
            free += 1
            pairs += count - 1
        bar = lowest - slack
        own_moves = own_moves or own > bar
        if most > 0 and rest > bar - 1.0:
            # For equal scores, samples should not all choose the first classes.
            begin = i % K
            n, bar = above(s, begin, K, bar - 1.0, values, classes, 0)
            n, bar = above(s, 0, begin, bar, values, classes, n)
            for k in range(n):
                listed[used] = classes[k]
                used += 1
        counts[o] = used - start
        moving[o] = counts[o] if own_moves else counts[o] - 1
        if moving[o] < 2:
            moving[o] = 0
    return loss, slope, smallest, free, pairs, used


@jit
def scaled_loss(margins, a):
    """Return Σ loss and Σ d loss/da of scores times a, by the margins."""
    loss = 0.0
    slope = 0.0
    for i in range(len(margins)):
        if a * margins[i] < 1.0:
            loss += 1.0 - a * margins[i]
            slope -= margins[i]
    return loss, slope


@jit
def descend(X, y, norms, rows, starts, stops, outputs, alpha, W, times, C, bias, epochs, slack, rng):
    """Dual coordinate descent over movable samples and classes, which maintains W = Σ λ_i f_iᵀ.

    Samples that stay at a corner by more than ``slack`` drop out; it ends when an epoch gains little.
    Returns the number of products w·f.
    """
    d = X.shape[1]
    n = len(rows)
    most = 0
    for o in range(n):
        most = max(most, stops[o] - starts[o])
    v = np.empty(most)
    g = np.empty(most)
    order = np.arange(n).astype(np.int32)
    active = n
    visits = 0
    first_gain = 0.0
    for _ in range(epochs):
        gained = 0.0
        for p in range(active - 1, 0, -1):
            q = random_below(rng, p + 1)
            order[p], order[q] = order[q], order[p]
        p = 0
        while p < active:
            o = order[p]
            i = rows[o]
            listed = outputs[starts[o] : stops[o]]
            a = alpha[starts[o] : stops[o]]
            m = len(listed)
            f = X[i]
            A = max(norms[i], 1e-300)
            gather_scores(W, listed, m, f, d, bias, g)
            visits += m
            top = -np.inf
            second = -np.inf
            for c in range(m):
                if listed[c] != y[i]:
                    g[c] += 1.0
                if g[c] > top:
                    second = top
                    top = g[c]
                elif g[c] > second:
                    second = g[c]
            # Relative to the largest g, so that v keeps its digits for tiny C·‖f‖².
            for c in range(m):
                v[c] = a[c] + (g[c] - top) / A
            theta = shift_to_simplex(v, times, listed, m, C)
            moved = False
            for c in range(m):
                k = listed[c]
                new = max(v[c] - theta, 0.0)
                step = new - a[c]
                if step != 0.0:
                    moved = True
                    gained += times[k] * step * (g[c] - 0.5 * A * step)
                    a[c] = new
                    axpy(-step, f, W[k], d)
                    if bias != 0.0:
                        W[k, d] -= bias * step
            if not moved and top - second > slack:
                active -= 1
                order[p], order[active] = order[active], order[p]
            else:
                p += 1
        first_gain = max(first_gain, gained)
        if gained < 0.05 * first_gain:
            break
    return visits


@jit
def project_rows(base, sigma, g, t, dg, ptr, outputs, times, C, out):
    """out = projection of base + σ·(g + t·dg) onto {a ≥ 0, Σ a = C}, row by row."""
    for i in range(len(ptr) - 1):
        start = ptr[i]
        m = ptr[i + 1] - start
        v = out[start : start + m]
        for c in range(m):
            v[c] = base[start + c] + sigma * (g[start + c] + t * dg[start + c])
        theta = shift_to_simplex(v, times, outputs[start:], m, C)
        for c in range(m):
            v[c] = max(v[c] - theta, 0.0)


@jit
def project_classes(X, rows, ptr, places, roots, bias, V, out):
    """out = P_i V f_i of the listed classes, P_i projecting those of sample i off the vector ``roots``."""
    d = X.shape[1]
    for o in range(len(rows)):
        start = ptr[o]
        m = ptr[o + 1] - start
        listed = places[start : start + m]
        z = out[start : start + m]
        gather_scores(V, listed, m, X[rows[o]], d, bias, z)
        mean = 0.0
        total = 0.0
        for c in range(m):
            root = roots[listed[c]]
            mean += root * z[c]
            total += root * root
        mean /= total
        for c in range(m):
            z[c] -= roots[listed[c]] * mean


@jit
def multiply_bases(products, first, at, ptr, places, values, out):
    """out[r, s] = products[r, at[s]] times that of two sparse vectors, first + r and s ≤ first + r."""
    for r in range(out.shape[0]):
        q = first + r
        for s in range(q + 1):
            total = 0.0
            for a in range(ptr[q], ptr[q + 1]):
                for b in range(ptr[s], ptr[s + 1]):
                    if places[a] == places[b]:
                        total += values[a] * values[b]
            out[r, s] = products[r, at[s]] * total if total != 0.0 else 0.0
