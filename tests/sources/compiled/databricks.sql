WITH `kanab_signatures` AS (
  SELECT
    `t2`.`arm0`,
    `t2`.`level0`,
    `t2`.`level1`,
    COUNT(*) AS `n`,
    COUNT(`t2`.`y0`) AS `c0`,
    SUM(CAST(`t2`.`g0` AS DECIMAL(20, 0))) AS `s0`,
    SUM(CAST(`t2`.`g0` * `t2`.`g0` AS DECIMAL(20, 0))) AS `q0_0`,
    SUM(
      CAST(`t2`.`g0` AS DOUBLE) * CAST(`t2`.`g0` AS DOUBLE) * CAST(`t2`.`g0` AS DOUBLE)
    ) AS `k0`,
    SUM(CAST(`t2`.`g0` <> 0 AS INT)) AS `o0`,
    MAX(`t2`.`g0`) AS `m0`,
    SUM(
      CAST(`t2`.`g0` AS DOUBLE) * CAST(`t2`.`g0` AS DOUBLE) * (
        CAST(`t2`.`g0` AS DOUBLE) * CAST(`t2`.`g0` AS DOUBLE)
      )
    ) AS `f0`,
    SUM(CAST((
      `t2`.`d0` < 0
    ) OR (
      `t2`.`d0` > 6000
    ) AS INT)) AS `cl0`,
    MIN(`t2`.`y0`) AS `lo0`,
    MAX(`t2`.`y0`) AS `hi0`,
    COUNT(`t2`.`y1`) AS `c1`,
    SUM(CAST(`t2`.`g1` AS DECIMAL(20, 0))) AS `s1`,
    SUM(CAST(`t2`.`g1` * `t2`.`g1` AS DECIMAL(20, 0))) AS `q1_0`,
    SUM(
      CAST(`t2`.`g1` AS DOUBLE) * CAST(`t2`.`g1` AS DOUBLE) * CAST(`t2`.`g1` AS DOUBLE)
    ) AS `k1`,
    SUM(CAST(ABS(`t2`.`g1`) <> 0 AS INT)) AS `o1`,
    MAX(ABS(`t2`.`g1`)) AS `m1`,
    SUM(
      CAST(ABS(`t2`.`g1`) AS DOUBLE) * CAST(ABS(`t2`.`g1`) AS DOUBLE) * (
        CAST(ABS(`t2`.`g1`) AS DOUBLE) * CAST(ABS(`t2`.`g1`) AS DOUBLE)
      )
    ) AS `f1`,
    SUM(CAST((
      `t2`.`d1` < -40000
    ) OR (
      `t2`.`d1` > 40000
    ) AS INT)) AS `cl1`,
    MIN(`t2`.`y1`) AS `lo1`,
    MAX(`t2`.`y1`) AS `hi1`,
    COUNT(`t2`.`y2`) AS `c2`,
    SUM(CAST(`t2`.`g2` AS DECIMAL(20, 0))) AS `s2`,
    SUM(CAST((
      `t2`.`d2` < 0
    ) OR (
      `t2`.`d2` > 1
    ) AS INT)) AS `cl2`,
    MIN(`t2`.`y2`) AS `lo2`,
    MAX(`t2`.`y2`) AS `hi2`,
    SUM(CAST(`t2`.`g1` * `t2`.`g0` AS DECIMAL(20, 0))) AS `z0_yz0`,
    SUM(
      CAST((
        NOT COALESCE(`t2`.`g1`, 0) IS NULL
      )
      AND (
        NOT COALESCE(`t2`.`g0`, 0) IS NULL
      )
      AND (
        COALESCE(`t2`.`g1`, 0) <> 0
      ) AS INT)
    ) AS `z0_off0`,
    SUM(
      CAST((
        NOT COALESCE(`t2`.`g1`, 0) IS NULL
      )
      AND (
        NOT COALESCE(`t2`.`g0`, 0) IS NULL
      )
      AND (
        COALESCE(`t2`.`g0`, 0) <> 0
      ) AS INT)
    ) AS `z0_off1`,
    SUM(
      CAST(IF(
        (
          NOT COALESCE(`t2`.`g1`, 0) IS NULL
        )
        AND (
          NOT COALESCE(`t2`.`g0`, 0) IS NULL
        ),
        COALESCE(`t2`.`g1`, 0),
        CAST(NULL AS BIGINT)
      ) AS DOUBLE) * CAST(IF(
        (
          NOT COALESCE(`t2`.`g1`, 0) IS NULL
        )
        AND (
          NOT COALESCE(`t2`.`g0`, 0) IS NULL
        ),
        COALESCE(`t2`.`g1`, 0),
        CAST(NULL AS BIGINT)
      ) AS DOUBLE) * CAST(IF(
        (
          NOT COALESCE(`t2`.`g1`, 0) IS NULL
        )
        AND (
          NOT COALESCE(`t2`.`g0`, 0) IS NULL
        ),
        COALESCE(`t2`.`g1`, 0),
        CAST(NULL AS BIGINT)
      ) AS DOUBLE)
    ) AS `z0_yyy`,
    SUM(
      CAST(IF(
        (
          NOT COALESCE(`t2`.`g1`, 0) IS NULL
        )
        AND (
          NOT COALESCE(`t2`.`g0`, 0) IS NULL
        ),
        COALESCE(`t2`.`g1`, 0),
        CAST(NULL AS BIGINT)
      ) AS DOUBLE) * CAST(IF(
        (
          NOT COALESCE(`t2`.`g1`, 0) IS NULL
        )
        AND (
          NOT COALESCE(`t2`.`g0`, 0) IS NULL
        ),
        COALESCE(`t2`.`g1`, 0),
        CAST(NULL AS BIGINT)
      ) AS DOUBLE) * CAST(IF(
        (
          NOT COALESCE(`t2`.`g1`, 0) IS NULL
        )
        AND (
          NOT COALESCE(`t2`.`g0`, 0) IS NULL
        ),
        COALESCE(`t2`.`g0`, 0),
        CAST(NULL AS BIGINT)
      ) AS DOUBLE)
    ) AS `z0_yyz`,
    SUM(
      CAST(IF(
        (
          NOT COALESCE(`t2`.`g1`, 0) IS NULL
        )
        AND (
          NOT COALESCE(`t2`.`g0`, 0) IS NULL
        ),
        COALESCE(`t2`.`g1`, 0),
        CAST(NULL AS BIGINT)
      ) AS DOUBLE) * CAST(IF(
        (
          NOT COALESCE(`t2`.`g1`, 0) IS NULL
        )
        AND (
          NOT COALESCE(`t2`.`g0`, 0) IS NULL
        ),
        COALESCE(`t2`.`g0`, 0),
        CAST(NULL AS BIGINT)
      ) AS DOUBLE) * CAST(IF(
        (
          NOT COALESCE(`t2`.`g1`, 0) IS NULL
        )
        AND (
          NOT COALESCE(`t2`.`g0`, 0) IS NULL
        ),
        COALESCE(`t2`.`g0`, 0),
        CAST(NULL AS BIGINT)
      ) AS DOUBLE)
    ) AS `z0_yzz`,
    SUM(
      CAST(IF(
        (
          NOT COALESCE(`t2`.`g1`, 0) IS NULL
        )
        AND (
          NOT COALESCE(`t2`.`g0`, 0) IS NULL
        ),
        COALESCE(`t2`.`g0`, 0),
        CAST(NULL AS BIGINT)
      ) AS DOUBLE) * CAST(IF(
        (
          NOT COALESCE(`t2`.`g1`, 0) IS NULL
        )
        AND (
          NOT COALESCE(`t2`.`g0`, 0) IS NULL
        ),
        COALESCE(`t2`.`g0`, 0),
        CAST(NULL AS BIGINT)
      ) AS DOUBLE) * CAST(IF(
        (
          NOT COALESCE(`t2`.`g1`, 0) IS NULL
        )
        AND (
          NOT COALESCE(`t2`.`g0`, 0) IS NULL
        ),
        COALESCE(`t2`.`g0`, 0),
        CAST(NULL AS BIGINT)
      ) AS DOUBLE)
    ) AS `z0_zzz`,
    MIN(`t2`.`g0`) AS `l0`,
    MAX(`t2`.`g0`) AS `h0`
  FROM (
    SELECT
      `t1`.`arm0`,
      `t1`.`level0`,
      `t1`.`level1`,
      `t1`.`y0`,
      `t1`.`d0`,
      `t1`.`y1`,
      `t1`.`d1`,
      `t1`.`y2`,
      `t1`.`d2`,
      CAST(CASE
        WHEN `t1`.`d0` > 6000.0
        THEN 6000.0
        WHEN `t1`.`d0` < 0.0
        THEN 0.0
        ELSE `t1`.`d0`
      END AS BIGINT) AS `g0`,
      CAST(CASE
        WHEN `t1`.`d1` > 40000.0
        THEN 40000.0
        WHEN `t1`.`d1` < -40000.0
        THEN -40000.0
        ELSE `t1`.`d1`
      END AS BIGINT) AS `g1`,
      CASE WHEN `t1`.`d2` > 1 THEN 1 WHEN `t1`.`d2` < 0 THEN 0 ELSE `t1`.`d2` END AS `g2`
    FROM (
      SELECT
        `t0`.`variant` AS `arm0`,
        `t0`.`tier` AS `level0`,
        `t0`.`vip` AS `level1`,
        IF(
          COALESCE(`t0`.`variant` IN ('A', 'B'), FALSE),
          IF(ISNAN(`t0`.`spend`), CAST(NULL AS DOUBLE), `t0`.`spend`),
          CAST(NULL AS DOUBLE)
        ) AS `y0`,
        FLOOR(
          (
            IF(
              COALESCE(`t0`.`variant` IN ('A', 'B'), FALSE),
              IF(ISNAN(`t0`.`spend`), CAST(NULL AS DOUBLE), `t0`.`spend`),
              CAST(NULL AS DOUBLE)
            ) * 100.0
          ) + 0.5
        ) AS `d0`,
        IF(
          COALESCE(`t0`.`variant` IN ('A', 'B'), FALSE),
          IF(ISNAN(`t0`.`balance`), CAST(NULL AS DOUBLE), `t0`.`balance`),
          CAST(NULL AS DOUBLE)
        ) AS `y1`,
        FLOOR(
          (
            IF(
              COALESCE(`t0`.`variant` IN ('A', 'B'), FALSE),
              IF(ISNAN(`t0`.`balance`), CAST(NULL AS DOUBLE), `t0`.`balance`),
              CAST(NULL AS DOUBLE)
            ) * 100.0
          ) + 0.5
        ) AS `d1`,
        IF(
          COALESCE(`t0`.`variant` IN ('A', 'B'), FALSE),
          CAST(`t0`.`bought` AS INT),
          CAST(NULL AS INT)
        ) AS `y2`,
        CAST(IF(
          COALESCE(`t0`.`variant` IN ('A', 'B'), FALSE),
          CAST(`t0`.`bought` AS INT),
          CAST(NULL AS INT)
        ) AS BIGINT) AS `d2`
      FROM `people` AS `t0`
    ) AS `t1`
  ) AS `t2`
  GROUP BY
    1,
    2,
    3
)
SELECT
  `place` AS `answer0`,
  `mask` AS `answer1`,
  CAST(`own_arm0` AS STRING) AS `answer2`,
  CAST(`own_level0` AS STRING) AS `answer3`,
  CAST(`own_level1` AS STRING) AS `answer4`,
  CASE `place`
    WHEN 0
    THEN CAST(MAX(`n`) AS STRING)
    WHEN 1
    THEN CAST(SUM(`n`) AS STRING)
    WHEN 2
    THEN CAST(SUM(`n`) AS STRING)
    WHEN 3
    THEN CAST(SUM(`n`) AS STRING)
    WHEN 4
    THEN CAST(SUM(`q0_0`) AS STRING)
    WHEN 5
    THEN CAST(SUM(`q0_0`) AS STRING)
  END AS `answer5`,
  CASE `place`
    WHEN 0
    THEN CAST(MAX(`c0`) AS STRING)
    WHEN 1
    THEN CAST(SUM(`c0`) AS STRING)
    WHEN 3
    THEN CAST(SUM(`c0`) AS STRING)
    WHEN 4
    THEN CAST(SUM(`q1_0`) AS STRING)
    WHEN 5
    THEN CAST(SUM(`q1_0`) AS STRING)
  END AS `answer6`,
  CASE `place`
    WHEN 0
    THEN CAST(MAX(`s0`) AS STRING)
    WHEN 1
    THEN CAST(MIN(`lo0`) AS STRING)
    WHEN 3
    THEN CAST(SUM(`s0`) AS STRING)
    WHEN 4
    THEN CAST(SUM(`z0_yz0`) AS STRING)
  END AS `answer7`,
  CASE `place`
    WHEN 0
    THEN CAST(MAX(`q0_0`) AS STRING)
    WHEN 1
    THEN CAST(MAX(`hi0`) AS STRING)
    WHEN 3
    THEN CAST(SUM(`c1`) AS STRING)
    WHEN 4
    THEN CAST(SUM(`z0_off0`) AS STRING)
  END AS `answer8`,
  CASE `place`
    WHEN 0
    THEN CAST(MAX(`o0`) AS STRING)
    WHEN 1
    THEN CAST(SUM(`cl0`) AS STRING)
    WHEN 3
    THEN CAST(SUM(`s1`) AS STRING)
    WHEN 4
    THEN CAST(SUM(`z0_off1`) AS STRING)
  END AS `answer9`,
  CASE `place`
    WHEN 0
    THEN CAST(MAX(`m0`) AS STRING)
    WHEN 1
    THEN CAST(SUM(`c1`) AS STRING)
    WHEN 3
    THEN CAST(SUM(`c2`) AS STRING)
    WHEN 4
    THEN CAST(SUM(`z0_yyy`) AS STRING)
  END AS `answer10`,
  CASE `place`
    WHEN 0
    THEN CAST(MAX(`f0`) AS STRING)
    WHEN 1
    THEN CAST(MIN(`lo1`) AS STRING)
    WHEN 3
    THEN CAST(SUM(`s2`) AS STRING)
    WHEN 4
    THEN CAST(SUM(`z0_yyz`) AS STRING)
  END AS `answer11`,
  CASE `place`
    WHEN 0
    THEN CAST(MAX(`c1`) AS STRING)
    WHEN 1
    THEN CAST(MAX(`hi1`) AS STRING)
    WHEN 4
    THEN CAST(SUM(`z0_yzz`) AS STRING)
  END AS `answer12`,
  CASE `place`
    WHEN 0
    THEN CAST(MAX(`s1`) AS STRING)
    WHEN 1
    THEN CAST(SUM(`cl1`) AS STRING)
    WHEN 4
    THEN CAST(SUM(`z0_zzz`) AS STRING)
  END AS `answer13`,
  CASE `place`
    WHEN 0
    THEN CAST(MAX(`q1_0`) AS STRING)
    WHEN 1
    THEN CAST(SUM(`c2`) AS STRING)
    WHEN 4
    THEN CAST(SUM(`o0`) AS STRING)
  END AS `answer14`,
  CASE `place`
    WHEN 0
    THEN CAST(MAX(`o1`) AS STRING)
    WHEN 1
    THEN CAST(MIN(`lo2`) AS STRING)
    WHEN 4
    THEN CAST(SUM(`o1`) AS STRING)
  END AS `answer15`,
  CASE `place`
    WHEN 0
    THEN CAST(MAX(`m1`) AS STRING)
    WHEN 1
    THEN CAST(MAX(`hi2`) AS STRING)
    WHEN 4
    THEN CAST(SUM(`k0`) AS STRING)
  END AS `answer16`,
  CASE `place`
    WHEN 0
    THEN CAST(MAX(`f1`) AS STRING)
    WHEN 1
    THEN CAST(SUM(`cl2`) AS STRING)
    WHEN 4
    THEN CAST(SUM(`k1`) AS STRING)
  END AS `answer17`,
  CASE `place` WHEN 0 THEN CAST(MAX(`l0`) AS STRING) END AS `answer18`,
  CASE `place` WHEN 0 THEN CAST(MAX(`h0`) AS STRING) END AS `answer19`
FROM (
  SELECT
    `place`,
    `mask`,
    CASE WHEN `number` IN (0, 3, 4, 5) THEN `arm0` END AS `own_arm0`,
    CASE WHEN `number` IN (0, 3) THEN `level0` END AS `own_level0`,
    CASE WHEN `number` IN (0, 4, 6) THEN `level1` END AS `own_level1`,
    `n`,
    `c0`,
    `s0`,
    `q0_0`,
    `o0`,
    `m0`,
    `f0`,
    `c1`,
    `s1`,
    `q1_0`,
    `o1`,
    `m1`,
    `f1`,
    `l0`,
    `h0`,
    `lo0`,
    `hi0`,
    `cl0`,
    `lo1`,
    `hi1`,
    `cl1`,
    `c2`,
    `lo2`,
    `hi2`,
    `cl2`,
    `s2`,
    `z0_yz0`,
    `z0_off0`,
    `z0_off1`,
    `z0_yyy`,
    `z0_yyz`,
    `z0_yzz`,
    `z0_zzz`,
    `k0`,
    `k1`
  FROM `kanab_signatures`
  CROSS JOIN (
    SELECT
      0 AS `number`,
      0 AS `place`,
      0 AS `mask`
    UNION ALL
    SELECT
      1 AS `number`,
      1 AS `place`,
      0 AS `mask`
    UNION ALL
    SELECT
      2 AS `number`,
      2 AS `place`,
      0 AS `mask`
    UNION ALL
    SELECT
      3 AS `number`,
      3 AS `place`,
      4 AS `mask`
    UNION ALL
    SELECT
      4 AS `number`,
      3 AS `place`,
      2 AS `mask`
    UNION ALL
    SELECT
      5 AS `number`,
      4 AS `place`,
      0 AS `mask`
    UNION ALL
    SELECT
      6 AS `number`,
      5 AS `place`,
      0 AS `mask`
  ) AS kanab_sets
  WHERE
    (
      `place` = 0 AND `arm0` IN ('A', 'B')
    )
    OR (
      `place` = 1 AND `arm0` IN ('A', 'B')
    )
    OR (
      `place` = 2 AND NOT COALESCE(`arm0` IN ('A', 'B'), FALSE)
    )
    OR (
      `place` = 3 AND `arm0` IN ('A', 'B')
    )
    OR (
      `place` = 4 AND `arm0` IN ('A', 'B')
    )
    OR (
      `place` = 5 AND `arm0` IN ('A', 'B')
    )
) AS kanab_rows
GROUP BY
  `place`,
  `mask`,
  `own_arm0`,
  `own_level0`,
  `own_level1`
