-- What people ask for, computed from silver as it is at the cut.

CREATE MATERIALIZED VIEW gold.shipment_status
COMMENT 'Where each shipment is now'
AS
WITH latest AS (
  SELECT
    shipment_shipment_id AS shipment_id,
    max_by(event_type, event_time) AS last_event,
    max_by(facility_facility_id, event_time) AS facility_id,
    max(event_time) AS last_seen_at,
    count(*) AS events
  FROM silver.shipment_scan_event
  GROUP BY shipment_shipment_id
)
SELECT
  s.shipment_id, s.customer_id, s.route_id, s.status, s.promised_delivery_at, s.actual_delivery_at, s.delay_minutes,
  l.last_event, l.facility_id AS last_facility_id, l.last_seen_at, coalesce(l.events, 0) AS events
FROM silver.shipment AS s
LEFT JOIN latest AS l ON l.shipment_id = s.shipment_id;

CREATE MATERIALIZED VIEW gold.on_time_by_route_and_day
COMMENT 'Share of delivered shipments that arrived by the promised time'
AS
SELECT
  s.route_id,
  r.carrier_name,
  CAST(s.promised_delivery_at AS DATE) AS promised_on,
  count(*) AS delivered,
  count_if(s.delay_minutes = 0) AS on_time,
  count_if(s.delay_minutes = 0) / count(*) AS on_time_rate
FROM silver.shipment AS s
JOIN silver.route AS r ON r.route_id = s.route_id
WHERE s.actual_delivery_at IS NOT NULL
GROUP BY s.route_id, r.carrier_name, CAST(s.promised_delivery_at AS DATE);

CREATE MATERIALIZED VIEW gold.exceptions_by_facility
COMMENT 'What went wrong where'
AS
SELECT
  e.facility_facility_id AS facility_id,
  f.facility_name,
  t.category,
  t.severity,
  count(*) AS exceptions,
  count_if(e.exception_resolved) AS resolved
FROM silver.shipment_scan_event AS e
JOIN silver.exception_type AS t ON t.exception_code = e.exception_exception_code
LEFT JOIN silver.facility AS f ON f.facility_id = e.facility_facility_id
GROUP BY e.facility_facility_id, f.facility_name, t.category, t.severity;
